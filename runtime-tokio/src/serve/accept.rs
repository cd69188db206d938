//! Clients' connections.

use std::sync::Arc;
use std::time::Duration;

use surefoot_runtime::http1::{self, Incoming};
use surefoot_runtime::serve::Respond;
use surefoot_runtime::serve::lifecycle::Lifecycle;
use tokio::net::TcpListener;

use crate::reactor::TokioTimer;
use crate::socket::Socket;

/// Accepts connections for as long as the server runs.
pub(super) async fn accept<R: Respond<Incoming<Socket>>>(listener: TcpListener, life: Arc<Lifecycle>, responder: R) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                let socket = Socket::Plain(stream);
                tokio::spawn(http1::serve::<_, TokioTimer, _>(socket, life.clone(), responder.clone()));
            }
            Err(error) => {
                // Out of descriptors, most often: a short pause gives others the time to close some.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
