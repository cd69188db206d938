//! Clients' connections.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use smol::Async;
use surefoot_runtime::http1::{self, Incoming};
use surefoot_runtime::serve::Respond;
use surefoot_runtime::serve::lifecycle::Lifecycle;

use crate::executor::Tasks;
use crate::reactor::SmolTimer;
use crate::socket::Socket;

/// Accepts connections for as long as the server runs.
pub(super) async fn accept<R: Respond<Incoming<Socket>>>(
    listener: Async<TcpListener>,
    life: Arc<Lifecycle>,
    responder: R,
    tasks: Tasks,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.get_ref().set_nodelay(true);
                let socket = Socket::Plain(stream);
                tasks.spawn(http1::serve::<_, SmolTimer, _>(socket, life.clone(), responder.clone())).detach();
            }
            Err(error) => {
                // Out of descriptors, most often: a short pause gives others the time to close some.
                tracing::warn!(%error, "a connection could not be accepted");
                smol::Timer::after(Duration::from_millis(50)).await;
            }
        }
    }
}
