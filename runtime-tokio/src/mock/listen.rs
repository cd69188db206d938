//! The port: open, or shut in one of several ways.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::script::Accept;
use super::serve;
use super::state::State;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A port, held whether it listens or not.
#[derive(Debug)]
pub(super) enum Door {
    Open(TcpListener),
    /// Bound without listening: the system refuses connections, and nobody else gets the port.
    Shut(TcpSocket),
}

impl Door {
    pub(super) fn new(addr: SocketAddr, shut: bool) -> io::Result<Door> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Else the connections of a door just shut keep the port for a minute. On Windows the flag means theft.
        #[cfg(unix)]
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        if shut { Ok(Door::Shut(socket)) } else { Ok(Door::Open(socket.listen(BACKLOG)?)) }
    }

    pub(super) fn addr(&self) -> io::Result<SocketAddr> {
        match self {
            Door::Open(listener) => listener.local_addr(),
            Door::Shut(socket) => socket.local_addr(),
        }
    }

    /// Opens or shuts it. Opening needs no new socket; shutting does, for there is no way to stop listening.
    fn turned(self, addr: SocketAddr, shut: bool) -> io::Result<Door> {
        match self {
            Door::Shut(socket) if !shut => Ok(Door::Open(socket.listen(BACKLOG)?)),
            Door::Open(listener) if shut => {
                drop(listener);
                Door::new(addr, true)
            }
            same => Ok(same),
        }
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Door::Open(listener) => listener.accept().await.map(|(stream, _)| stream),
            Door::Shut(_) => pending().await,
        }
    }
}

/// Serves the port until it is dropped, and its connections with it.
pub(super) async fn run(mut door: Door, addr: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    let mut ignored = Vec::new();
    loop {
        let (accept, opens) = mode(&state);
        let shut = accept == Accept::Refuse;
        if shut {
            // A dead process takes its connections along.
            connections.shutdown().await;
        }
        if accept != Accept::Ignore {
            ignored.clear();
        }
        door = match door.turned(addr, shut) {
            Ok(door) => door,
            Err(_) => regained(addr, shut).await,
        };
        let opening = async {
            match opens {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = state.changed.notified() => {}
            () = opening => {}
            Some(_) = connections.join_next() => {}
            accepted = door.accept() => match accepted {
                Ok(stream) => {
                    state.connected();
                    match accept {
                        Accept::Open => drop(connections.spawn(serve::connection(stream, Arc::clone(&state)))),
                        Accept::Reset => serve::reset(&stream),
                        Accept::Ignore => ignored.push(stream),
                        Accept::Close | Accept::Refuse => drop(stream),
                    }
                }
                // Out of file descriptors, most likely: give connections time to end.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

/// What to do with connections now, and when that changes by itself.
fn mode(state: &State) -> (Accept, Option<Instant>) {
    let (accept, after) = state.with_script(|script| (script.accept, script.open_after_ms));
    let opens = state.started() + Duration::from_millis(after);
    match accept {
        Accept::Open => (Accept::Open, None),
        other if after == 0 => (other, None),
        _ if Instant::now() >= opens => (Accept::Open, None),
        other => (other, Some(opens)),
    }
}

/// The port again, after somebody else was quicker: tried until it works.
async fn regained(addr: SocketAddr, shut: bool) -> Door {
    loop {
        if let Ok(door) = Door::new(addr, shut) {
            return door;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
