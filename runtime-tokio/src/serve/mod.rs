//! `surefoot serve`: listeners, signals, reload, drain.

pub mod body;
mod client_io;
pub mod connection;
mod discovery;
pub mod gate;
mod host;
pub mod lifecycle;
mod reload;
mod reply;
mod request;
mod running;
pub mod shared;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use surefoot_core::policy::config::Config;
use tokio::net::{TcpListener, TcpSocket};

use self::connection::Respond;
use self::lifecycle::{Presence, Stage};
pub use self::reload::World;
use self::shared::Shared;
use crate::admin::AdminSide;
use crate::config_file::Origin;
use crate::trace_file::{TraceFile, TraceFileError};

/// How often unused connections are looked at.
const SWEEP: Duration = Duration::from_secs(10);
/// After the drain's deadline calls have this long to say that they were cut.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be taken.
    #[error("cannot listen on {address}: {source}; is another process there already?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        source: std::io::Error,
    },
    /// The trace's file cannot be opened.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// The system gives no signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// A server with its listeners open. It serves from [`Server::run`] on.
#[derive(Debug)]
pub struct Server {
    world: Arc<World>,
    clients: TcpListener,
    admin: Option<TcpListener>,
}

impl Server {
    /// Opens the listeners. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// An address that cannot be taken.
    pub fn open(config: Config) -> Result<Server, StartError> {
        let clients = listen(config.server.listen)?;
        let admin = config.server.admin_listen.map(listen).transpose()?;
        let trace = TraceFile::open(&config.trace)?;
        if config.state.url.is_some() {
            tracing::warn!(
                "state.url: a store shared by several gateways is not served yet; this one keeps its own gate"
            );
        }
        let world = Arc::new(World::new(config));
        world.shared().set_trace(trace);
        Ok(Server { world, clients, admin })
    }

    /// The clients' address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.clients.local_addr().ok()
    }

    /// The admin side's address.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    /// What all calls share.
    pub fn shared(&self) -> &Arc<Shared> {
        self.world.shared()
    }

    /// Serves until `stop`, then drains (M10); `hurry` cuts the drain short.
    pub async fn run(self, stop: impl Future<Output = ()>, hurry: impl Future<Output = ()>) {
        let shared = self.world.shared().clone();
        let accepting = tokio::spawn(connection::accept(self.clients, shared.life.clone(), ClientSide(shared.clone())));
        let admin = self.admin.map(|listener| {
            // The admin side goes with the process: nobody waits for its connections.
            tokio::spawn(connection::accept(listener, Arc::default(), AdminSide::new(self.world.clone())))
        });
        let discovering = tokio::spawn(discovery::run(self.world.clone()));
        let sweeping = tokio::spawn(sweep(shared.clone()));
        stop.await;
        accepting.abort();
        discovering.abort();
        sweeping.abort();
        drain(&shared, hurry).await;
        if let Some(trace) = shared.trace() {
            trace.flush();
        }
        if let Some(admin) = admin {
            admin.abort();
        }
    }

    /// The world, for reloads.
    pub fn world(&self) -> Arc<World> {
        self.world.clone()
    }
}

/// Finishes what runs, within the drain's deadline.
async fn drain(shared: &Shared, hurry: impl Future<Output = ()>) {
    let limit = Duration::from_micros(shared.snapshot().gateway.config().server.drain.0);
    let calls = shared.life.calls();
    tracing::info!(calls, limit_ms = limit.as_millis() as u64, "stopping: no new calls, running ones are finished");
    shared.life.enter(Stage::Draining);
    tokio::select! {
        biased;
        () = shared.life.empty() => return,
        () = tokio::time::sleep(limit) => {}
        () = hurry => {}
    }
    tracing::warn!(calls = shared.life.calls(), "what still runs is cut");
    shared.life.enter(Stage::Cutting);
    let _ = tokio::time::timeout(LAST_WORDS, shared.life.empty()).await;
}

async fn sweep(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        shared.upstreams.sweep();
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart must not wait for the old process's connections to be forgotten.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(4096)
    };
    open().map_err(|source| StartError::Listen { address, source })
}

/// What answers clients.
#[derive(Clone, Debug)]
struct ClientSide(Arc<Shared>);

impl Respond for ClientSide {
    type Body = body::ReplyBody;

    fn respond(
        &self,
        request: Request<Incoming>,
        presence: Arc<Presence>,
    ) -> impl Future<Output = Response<body::ReplyBody>> + Send + 'static {
        request::respond(self.0.clone(), request, presence)
    }

    fn client_stall(&self) -> Option<Duration> {
        request::stall(self.0.snapshot().gateway.config().server.client_stall)
    }
}

/// Serves a configuration as a process does: one line on stdout when ready, SIGHUP rereads, SIGTERM and SIGINT drain, and
/// cut the drain short when they come again.
///
/// # Errors
///
/// An address that cannot be taken.
pub async fn serve(config: Config, origin: Origin) -> Result<(), StartError> {
    use tokio::signal::unix::{SignalKind, signal};
    // Before the line that says "ready": whoever waits for it may signal at once.
    let heard = |kind| signal(kind).map_err(StartError::Signals);
    let mut hangup = heard(SignalKind::hangup())?;
    let mut terminate = heard(SignalKind::terminate())?;
    let mut interrupt = heard(SignalKind::interrupt())?;
    let server = Server::open(config)?;
    if let Some(address) = server.admin_address() {
        tracing::info!("metrics and status on http://{address}");
    }
    if let Some(address) = server.address() {
        announce(address);
    }
    let world = server.world();
    let reloading = tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            world.reload(&origin);
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (hurry, hurried) = tokio::sync::oneshot::channel();
    let stopping = tokio::spawn(async move {
        for told in [stop, hurry] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            let _ = told.send(());
        }
    });
    server.run(async { drop(stopped.await) }, async { drop(hurried.await) }).await;
    reloading.abort();
    stopping.abort();
    Ok(())
}

/// The one line on stdout.
fn announce(address: SocketAddr) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    // Nobody may be there to read it; that is no reason to stop.
    let _ = writeln!(stdout, "listening on http://{address}").and_then(|()| stdout.flush());
}
