//! What smol brings: timers, tasks and connections.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use surefoot_core::event::Fault;
use surefoot_runtime::reactor::{Reactor, Timer};
use surefoot_runtime::upstream::Origin;

use crate::executor::Tasks;
use crate::upstream::{Connector, Link};

/// Smol, as the rest of the gateway sees it.
#[derive(Debug)]
pub struct Smol {
    tasks: Tasks,
    connector: Connector,
}

impl Smol {
    /// With these tasks and these connections.
    pub fn new(tasks: Tasks, connector: Connector) -> Smol {
        Smol { tasks, connector }
    }

    /// What makes its connections.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }
}

impl Reactor for Smol {
    type Timer = SmolTimer;
    type Link = Link;

    async fn connect(&self, origin: &Origin) -> Result<Link, Fault> {
        Ok(Link::new(self.connector.dial(origin).await?))
    }

    fn warm_tls(&self) {
        self.connector.warm_tls();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task).detach();
    }
}

/// A timer of smol's.
#[derive(Debug)]
pub struct SmolTimer {
    due: Instant,
    timer: smol::Timer,
}

impl Timer for SmolTimer {
    fn at(at: Instant) -> SmolTimer {
        SmolTimer { due: at, timer: smol::Timer::at(at) }
    }

    fn set(&mut self, at: Instant) {
        self.due = at;
        self.timer.set_at(at);
    }
}

impl Future for SmolTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Smol's own is pending for ever once it was ready.
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        Pin::new(&mut self.timer).poll(cx).map(drop)
    }
}
