//! `surefoot-smol serve`: listeners, signals, reload, drain.

mod connection;
mod incoming;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use async_signal::{Signal, Signals};
use smol::Async;
use smol::stream::StreamExt;
use surefoot_core::policy::config::Config;
use surefoot_runtime::admin::AdminSide;
use surefoot_runtime::config_file::Origin;
pub use surefoot_runtime::serve::StartError;
use surefoot_runtime::serve::{ClientSide, announce, discovery, drain, listen, sweep};
use surefoot_runtime::trace_file::TraceFile;

pub use self::incoming::Incoming;
use crate::executor::Tasks;
use crate::reactor::Smol;
use crate::upstream::{Connector, Proxies};

/// What snapshots are made of, and what they are made into.
pub type World = surefoot_runtime::serve::World<Smol>;
/// What all calls share.
pub type Shared = surefoot_runtime::serve::shared::Shared<Smol>;

/// A server with its listeners open. It serves from [`Server::run`] on.
#[derive(Debug)]
pub struct Server {
    tasks: Tasks,
    world: Arc<World>,
    clients: Async<TcpListener>,
    admin: Option<Async<TcpListener>>,
}

impl Server {
    /// Opens the listeners. What it serves runs as `tasks`.
    ///
    /// # Errors
    ///
    /// An address that cannot be taken, a trace file that cannot be opened.
    pub fn open(config: Config, tasks: Tasks) -> Result<Server, StartError> {
        let clients = open(config.server.listen)?;
        let admin = config.server.admin_listen.map(open).transpose()?;
        let trace = TraceFile::open(&config.trace)?;
        let reactor = Smol::new(tasks.clone(), Connector::new(Proxies::from_env()));
        let world = Arc::new(World::new(config, reactor));
        world.shared().set_trace(trace);
        Ok(Server { tasks, world, clients, admin })
    }

    /// The clients' address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.clients.get_ref().local_addr().ok()
    }

    /// The admin side's address.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.get_ref().local_addr().ok()
    }

    /// What all calls share.
    pub fn shared(&self) -> &Arc<Shared> {
        self.world.shared()
    }

    /// The world, for reloads.
    pub fn world(&self) -> Arc<World> {
        self.world.clone()
    }

    /// Serves until `stop`, then drains (M10); `hurry` cuts the drain short.
    pub async fn run(self, stop: impl Future<Output = ()>, hurry: impl Future<Output = ()>) {
        let Server { tasks, world, clients, admin } = self;
        let shared = world.shared().clone();
        let side = ClientSide::new(shared.clone());
        let accepting = tasks.spawn(connection::accept(clients, shared.life.clone(), side, tasks.clone()));
        // The admin side goes with the process: nobody waits for its connections.
        let admin = admin.map(|listener| {
            let side = AdminSide::new(world.clone());
            tasks.spawn(connection::accept(listener, Arc::default(), side, tasks.clone()))
        });
        let discovering = tasks.spawn(discovery::run(world.clone()));
        let sweeping = tasks.spawn(sweep(shared.clone()));
        stop.await;
        // A task ends when its handle is dropped.
        drop((accepting, discovering, sweeping));
        drain(&shared, hurry).await;
        if let Some(trace) = shared.trace() {
            trace.flush();
        }
        drop(admin);
    }
}

fn open(address: SocketAddr) -> Result<Async<TcpListener>, StartError> {
    Async::new_nonblocking(listen(address)?).map_err(|source| StartError::Listen { address, source })
}

/// Serves a configuration as a process does: one line on stdout when ready, SIGHUP rereads, SIGTERM and SIGINT drain, and
/// cut the drain short when they come again.
///
/// # Errors
///
/// An address that cannot be taken.
pub async fn serve(config: Config, origin: Origin, tasks: Tasks) -> Result<(), StartError> {
    // Before the line that says "ready": whoever waits for it may signal at once.
    let mut signals = Signals::new([Signal::Hup, Signal::Term, Signal::Int]).map_err(StartError::Signals)?;
    let server = Server::open(config, tasks.clone())?;
    if let Some(address) = server.admin_address() {
        tracing::info!("metrics and status on http://{address}");
    }
    if let Some(address) = server.address() {
        announce(address);
    }
    let world = server.world();
    let (told, stopped) = smol::channel::bounded(2);
    let hurried = stopped.clone();
    let listening = tasks.spawn(async move {
        while let Some(signal) = signals.next().await {
            match signal {
                Ok(Signal::Hup) => world.reload(&origin),
                Ok(_) => drop(told.try_send(())),
                Err(error) => tracing::warn!(%error, "a signal was lost"),
            }
        }
        // The channel closes with this task: without signals nobody could stop the server any more.
        std::future::pending::<()>().await;
    });
    let stop = async {
        let _ = stopped.recv().await;
    };
    let hurry = async {
        let _ = hurried.recv().await;
    };
    server.run(stop, hurry).await;
    drop(listening);
    Ok(())
}
