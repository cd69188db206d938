//! Connections to upstreams: DNS, TCP, the environment's proxies and TLS, with every failure told by its kind (F13).

use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_rustls::TlsConnector;
use http::HeaderValue;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use smol::Async;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use surefoot_core::event::Fault;
use surefoot_runtime::reactor::Alarm;
use surefoot_runtime::upstream::{Origin, connect_fault, tls_config, trusted_roots};

use super::proxy::{Proxies, Proxy, Way, bare_host};
use super::socks;
use crate::reactor::SmolTimer;
use crate::socket::Socket;

/// How long one address of several is tried alone before the next one is tried beside it (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(300);
/// A proxy's answer to CONNECT is no longer than this.
const TUNNEL_ANSWER: usize = 16 << 10;

type Tcp = Async<TcpStream>;

/// A connection, made.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) socket: Socket,
    /// A plain proxy forwards: it wants the whole URL in the request line, and this header if it asks for one.
    pub(crate) forward: Option<Option<HeaderValue>>,
}

/// Makes connections. One for the whole process: the roots and the proxies do not change while it runs.
pub struct Connector {
    proxies: Proxies,
    tls: OnceLock<TlsConnector>,
}

impl Connector {
    /// A connector that heeds the given proxies.
    pub fn new(proxies: Proxies) -> Connector {
        Connector { proxies, tls: OnceLock::new() }
    }

    /// Reads the trusted roots now and not at the first request.
    pub fn warm_tls(&self) {
        self.tls.get_or_init(|| TlsConnector::from(Arc::new(tls_config(trusted_roots(), false))));
    }

    /// Trusts these roots alone.
    ///
    /// # Errors
    ///
    /// The roots, when TLS was set up before.
    pub fn trust(&self, roots: RootCertStore) -> Result<(), RootCertStore> {
        let config = tls_config(roots.clone(), false);
        self.tls.set(TlsConnector::from(Arc::new(config))).map_err(|_| roots)
    }

    /// Connects to `origin`, for as long as the system tries.
    pub(crate) async fn dial(&self, origin: &Origin) -> Result<Dialed, Fault> {
        let host = bare_host(origin.authority.host());
        let port = origin.authority.port_u16().unwrap_or(if origin.https { 443 } else { 80 });
        let connected = match self.proxies.of(origin) {
            None => tcp(host, port).await.map(|tcp| (tcp, None)),
            Some(proxy) => through(proxy, origin.https, host, port).await,
        };
        let (tcp, forward) = connected.map_err(|error| {
            // The proxy's address stays out of it: it may hold a password.
            tracing::debug!(origin = %origin.authority, %error, "no connection");
            connect_fault(&error)
        })?;
        if !origin.https {
            return Ok(Dialed { socket: Socket::Plain(tcp), forward });
        }
        self.warm_tls();
        let tls = self.tls.get().ok_or(Fault::Tls)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| Fault::Tls)?;
        let stream = tls.connect(name, tcp).await.map_err(|error| {
            tracing::debug!(origin = %origin.authority, %error, "the TLS handshake failed");
            Fault::Tls
        })?;
        Ok(Dialed { socket: Socket::Tls(Box::new(stream)), forward: None })
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The proxies may hold passwords.
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

async fn through(proxy: &Proxy, https: bool, host: &str, port: u16) -> io::Result<(Tcp, Option<Option<HeaderValue>>)> {
    if let Way::Unknown(scheme) = &proxy.way {
        tracing::warn!(scheme, "proxies of this kind are not supported; use http:// or socks5://");
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut stream = tcp(&proxy.host, proxy.port).await?;
    match proxy.way {
        Way::Socks5 { local_names } => {
            let looked_up =
                if local_names { resolve(host, port).await?.first().map(|found| found.ip().to_string()) } else { None };
            socks::connect(&mut stream, proxy.login.as_ref(), looked_up.as_deref().unwrap_or(host), port).await?;
            Ok((stream, None))
        }
        _ if https => {
            tunnel(&mut stream, proxy, host, port).await?;
            Ok((stream, None))
        }
        _ => Ok((stream, Some(proxy.authorization()))),
    }
}

/// Has an HTTP proxy pass bytes on.
async fn tunnel(stream: &mut Tcp, proxy: &Proxy, host: &str, port: u16) -> io::Result<()> {
    let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    if let Some(authorization) = proxy.authorization() {
        request.extend_from_slice(b"proxy-authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await?;
    // One byte at a time: what stands behind the answer is the other side's.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") && answer.len() < TUNNEL_ANSWER {
        let mut byte = [0];
        stream.read_exact(&mut byte).await?;
        answer.push(byte[0]);
    }
    let agreed = answer.starts_with(b"HTTP/1.1 2") || answer.starts_with(b"HTTP/1.0 2");
    if agreed { Ok(()) } else { Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the proxy does not connect")) }
}

async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let mut found = smol::net::resolve((host, port)).await?;
    // Every other one of the other family, beginning with the resolver's own choice: a family that leads nowhere costs a
    // head start and not a timeout.
    let first_family = found.first().map(SocketAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) =
        found.drain(..).partition(|address| Some(address.is_ipv6()) == first_family);
    let mut ordered = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.drain(..), second.drain(..));
    loop {
        let pair = [first.next(), second.next()];
        if pair == [None, None] {
            return Ok(ordered);
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

/// Connects to a host, by whichever of its addresses answers first.
async fn tcp(host: &str, port: u16) -> io::Result<Tcp> {
    let mut waiting = resolve(host, port).await?.into_iter();
    let mut trying: Vec<Pin<Box<dyn Future<Output = io::Result<Tcp>> + Send>>> = Vec::new();
    let mut alarm = Alarm::<SmolTimer>::default();
    let mut next_at = Instant::now();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let stream = poll_fn(|cx| {
        loop {
            let mut at = 0;
            while at < trying.len() {
                match trying[at].as_mut().poll(cx) {
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                    Poll::Ready(Err(error)) => {
                        failed = error;
                        drop(trying.swap_remove(at));
                        // The next address need not wait for a head start that is over.
                        next_at = Instant::now();
                    }
                    Poll::Pending => at += 1,
                }
            }
            if waiting.len() == 0 {
                return if trying.is_empty() { Poll::Ready(Err(())) } else { Poll::Pending };
            }
            std::task::ready!(alarm.poll(cx, next_at));
            if let Some(address) = waiting.next() {
                trying.push(Box::pin(Async::<TcpStream>::connect(address)));
                next_at = Instant::now() + HEAD_START;
            }
        }
    })
    .await;
    let Ok(stream) = stream else { return Err(failed) };
    stream.get_ref().set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    socket2::SockRef::from(stream.get_ref()).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
