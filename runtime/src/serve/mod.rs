//! A server, as far as no reactor is needed for it: requests, calls, reload, drain.

pub mod body;
pub mod discovery;
pub mod gate;
pub mod host;
pub mod lifecycle;
pub mod patience;
mod reload;
mod reply;
mod request;
mod running;
mod schema;
pub mod shared;

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;

use self::body::{AnswerBody, ReplyBody};
use self::lifecycle::{Presence, Stage};
pub use self::reload::World;
use self::shared::Shared;
use crate::reactor::{Alarm, Reactor, timeout};
use crate::trace_file::TraceFileError;

/// How often unused connections are looked at.
const SWEEP: Duration = Duration::from_secs(10);
/// After the drain's deadline calls have this long to say that they were cut.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// A client's connection that is not used, or whose request's head does not come, is closed after this or twice this.
pub const CLIENT_IDLE: Duration = Duration::from_secs(60);

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
    /// The configuration asks for what the adapter cannot make sense of.
    #[error("{0}")]
    Config(String),
    /// The trace's file cannot be opened.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// The system gives no signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// What answers the requests of a listener, whose bodies are `B`.
pub trait Respond<B>: Clone + Send + Sync + 'static {
    /// The body of its answers.
    type Body: AnswerBody + Send + 'static;

    /// Answers a request that came over the connection `presence`.
    fn respond(
        &self,
        request: Request<B>,
        presence: Arc<Presence>,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;

    /// Answers what came in a request's place, and why it is none, as far as is known to `path`.
    fn refuse(&self, status: StatusCode, message: &'static str, path: &str) -> Response<Self::Body>;

    /// How long a client may take nothing; `None` = as long as it likes.
    fn client_stall(&self) -> Option<Duration>;
}

/// What answers clients.
pub struct ClientSide<R: Reactor>(Arc<Shared<R>>);

impl<R: Reactor> ClientSide<R> {
    /// The clients' side of what all calls share.
    pub fn new(shared: Arc<Shared<R>>) -> ClientSide<R> {
        ClientSide(shared)
    }
}

impl<R: Reactor> Clone for ClientSide<R> {
    fn clone(&self) -> ClientSide<R> {
        ClientSide(self.0.clone())
    }
}

impl<R: Reactor> fmt::Debug for ClientSide<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSide").finish_non_exhaustive()
    }
}

impl<R: Reactor, B> Respond<B> for ClientSide<R>
where
    B: Body<Data = Bytes, Error = std::io::Error> + Send + Unpin + 'static,
{
    type Body = ReplyBody<R>;

    fn respond(
        &self,
        request: Request<B>,
        presence: Arc<Presence>,
    ) -> impl Future<Output = Response<ReplyBody<R>>> + Send + 'static {
        request::respond(self.0.clone(), request, presence)
    }

    fn refuse(&self, status: StatusCode, message: &'static str, path: &str) -> Response<ReplyBody<R>> {
        request::refuse(&self.0, status, message, path)
    }

    fn client_stall(&self) -> Option<Duration> {
        request::stall(self.0.snapshot().gateway.config().server.client_stall)
    }
}

/// Opens a listener for a reactor to wait on.
///
/// # Errors
///
/// An address that cannot be taken.
pub fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        // A restart must not wait for the old process's connections to be forgotten.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|source| StartError::Listen { address, source })
}

/// Finishes what runs, within the drain's deadline; `hurry` cuts it short (M10).
pub async fn drain<R: Reactor>(shared: &Shared<R>, hurry: impl Future<Output = ()>) {
    let limit = Duration::from_micros(shared.snapshot().gateway.config().server.drain.0);
    let calls = shared.life.calls();
    tracing::info!(calls, limit_ms = limit.as_millis() as u64, "stopping: no new calls, running ones are finished");
    shared.life.enter(Stage::Draining);
    let (mut empty, mut hurry) = (pin!(shared.life.empty()), pin!(hurry));
    let mut alarm = Alarm::<R::Timer>::default();
    let deadline = Instant::now() + limit;
    let emptied = poll_fn(|cx| {
        if empty.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let cut = alarm.poll(cx, deadline).is_ready() || hurry.as_mut().poll(cx).is_ready();
        if cut { Poll::Ready(false) } else { Poll::Pending }
    })
    .await;
    if emptied {
        return;
    }
    tracing::warn!(calls = shared.life.calls(), "what still runs is cut");
    shared.life.enter(Stage::Cutting);
    let _ = timeout::<R::Timer, _>(LAST_WORDS, shared.life.empty()).await;
}

/// Closes unused connections to upstreams, for as long as the server runs.
pub async fn sweep<R: Reactor>(shared: Arc<Shared<R>>) {
    let mut alarm = Alarm::<R::Timer>::default();
    loop {
        let next = Instant::now() + SWEEP;
        poll_fn(|cx| alarm.poll(cx, next)).await;
        shared.upstreams.sweep();
    }
}

/// The one line on stdout that says that the server is ready.
pub fn announce(address: SocketAddr) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    // Nobody may be there to read it; that is no reason to stop.
    let _ = writeln!(stdout, "listening on http://{address}").and_then(|()| stdout.flush());
}
