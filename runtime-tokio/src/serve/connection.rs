//! One connection of a client: HTTP/1 until it is idle for too long, or the server goes.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use surefoot_runtime::serve::lifecycle::{Lifecycle, Stage};
use surefoot_runtime::serve::patience::Patience;
use surefoot_runtime::serve::{CLIENT_IDLE, Respond};
use tokio::net::{TcpListener, TcpStream};

use super::client_io::ClientIo;

/// Accepts connections for as long as the server runs.
pub async fn accept(listener: TcpListener, life: Arc<Lifecycle>, responder: impl Respond<Incoming>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve(stream, life.clone(), responder.clone()));
            }
            Err(error) => {
                // Out of descriptors, most often: a short pause gives others the time to close some.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, life: Arc<Lifecycle>, responder: impl Respond<Incoming>) {
    let _ = stream.set_nodelay(true);
    let present = life.join();
    let presence = present.presence();
    let io = TokioIo::new(ClientIo::new(stream, Patience::new(presence.clone(), responder.client_stall())));
    let service = hyper::service::service_fn(|request| {
        let answer = responder.respond(request, presence.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    // hyper's own timer for heads would be set anew for every request; one look a minute does as well.
    let connection = http1::Builder::new().header_read_timeout(None).serve_connection(io, service);
    let mut connection = pin!(connection);
    let mut tick = pin!(tokio::time::sleep(CLIENT_IDLE));
    let (mut listening, mut told, mut seen) = (false, false, None);
    poll_fn(|cx| {
        if !listening {
            presence.listen(cx.waker());
            listening = true;
        }
        if life.stage() != Stage::Running {
            // Woken once for each stage: listen again for the next.
            presence.listen(cx.waker());
            if !told {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            if presence.requests() == 0 {
                return Poll::Ready(());
            }
        }
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        while tick.as_mut().poll(cx).is_ready() {
            let requests = (!presence.is_busy()).then(|| presence.requests());
            if requests.is_some() && requests == seen {
                return Poll::Ready(());
            }
            seen = requests;
            tick.as_mut().reset(tokio::time::Instant::now() + CLIENT_IDLE);
        }
        Poll::Pending
    })
    .await;
}
