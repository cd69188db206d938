//! What tokio brings: timers, tasks and connections.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper_util::client::proxy::matcher::Matcher;
use surefoot_core::event::Fault;
use surefoot_runtime::reactor::{Reactor, Timer};
use surefoot_runtime::upstream::Origin;

use crate::upstream::{Connector, Link};

/// Tokio, as the rest of the gateway sees it.
#[derive(Debug)]
pub struct Tokio {
    connector: Connector,
}

impl Tokio {
    /// With these connections.
    pub fn new(connector: Connector) -> Tokio {
        Tokio { connector }
    }

    /// With connections that heed the environment's proxies.
    pub fn from_env() -> Tokio {
        Tokio::new(Connector::new(Matcher::from_env()))
    }

    /// What makes its connections.
    pub fn connector(&self) -> &Connector {
        &self.connector
    }
}

impl Reactor for Tokio {
    type Timer = TokioTimer;
    type Link = Link;

    async fn connect(&self, origin: &Origin) -> Result<Link, Fault> {
        Link::open(self.connector.dial(origin).await?).await
    }

    fn warm_tls(&self) {
        self.connector.warm_tls();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // None is there when a process ends: then there is nothing left to be done either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(task);
        }
    }
}

/// A timer of tokio's.
#[derive(Debug)]
pub struct TokioTimer(Pin<Box<tokio::time::Sleep>>);

impl Timer for TokioTimer {
    fn at(at: Instant) -> TokioTimer {
        TokioTimer(Box::pin(tokio::time::sleep_until(at.into())))
    }

    fn set(&mut self, at: Instant) {
        self.0.as_mut().reset(at.into());
    }
}

impl Future for TokioTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
