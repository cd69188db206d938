//! `surefoot serve`: listeners, signals, reload, drain.

mod client_io;
pub mod connection;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::client::proxy::matcher::Matcher;
use surefoot_core::policy::config::Config;
pub use surefoot_runtime::serve::StartError;
use surefoot_runtime::serve::{ClientSide, announce, discovery, drain, listen, sweep};
use tokio::net::TcpListener;

use crate::admin::AdminSide;
use crate::config_file::Origin;
use crate::reactor::Tokio;
use crate::state::StoreAddress;
use crate::trace_file::TraceFile;
use crate::upstream::Connector;

/// What snapshots are made of, and what they are made into.
pub type World = surefoot_runtime::serve::World<Tokio>;
/// What all calls share.
pub type Shared = surefoot_runtime::serve::shared::Shared<Tokio>;

/// A server with its listeners open. It serves from [`Server::run`] on.
#[derive(Debug)]
pub struct Server {
    world: Arc<World>,
    clients: TcpListener,
    admin: Option<TcpListener>,
}

impl Server {
    /// Opens the listeners. Must be called within a tokio runtime. Providers are reached through the proxies that the
    /// environment names (`HTTP_PROXY` and its kin).
    ///
    /// # Errors
    ///
    /// An address that cannot be taken, a `state.url` that cannot be read, a trace file that cannot be opened.
    pub fn open(config: Config) -> Result<Server, StartError> {
        Server::open_on(config, Tokio::from_env())
    }

    /// The same, for providers that are all on this machine: no proxy is heeded.
    ///
    /// # Errors
    ///
    /// As [`Server::open`].
    pub fn open_direct(config: Config) -> Result<Server, StartError> {
        Server::open_on(config, Tokio::new(Connector::new(Matcher::builder().build())))
    }

    fn open_on(config: Config, reactor: Tokio) -> Result<Server, StartError> {
        let clients = open(config.server.listen)?;
        let admin = config.server.admin_listen.map(open).transpose()?;
        let trace = TraceFile::open(&config.trace)?;
        let store = StoreAddress::of(&config.state).map_err(StartError::Config)?;
        let world = Arc::new(World::new(config, reactor));
        if let Some(store) = store {
            store.share(world.shared());
        }
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
        let accepting =
            tokio::spawn(connection::accept(self.clients, shared.life.clone(), ClientSide::new(shared.clone())));
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

fn open(address: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = listen(address)?;
    TcpListener::from_std(listener).map_err(|source| StartError::Listen { address, source })
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
