//! A forward proxy: it tunnels with CONNECT, forwards plain requests, and notes what it was asked for.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts one. It runs as long as the test does.
    ///
    /// # Panics
    ///
    /// There is no free port.
    pub fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no free port: {error}"));
        let addr = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                // Whatever goes wrong shows at the client as a connection that closed.
                std::thread::spawn(move || relay(client, &noted));
            }
        });
        Proxy { addr, asked }
    }

    /// Its URL, as `HTTPS_PROXY` wants it.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The request lines so far, without the version: `CONNECT localhost:443`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn relay(client: TcpStream, noted: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut words = text.split(' ');
    let (method, place) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    noted.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} {place}"));
    if method == "CONNECT" {
        let upstream = TcpStream::connect(place)?;
        (&client).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        return join(reader, client, upstream);
    }
    // Forwarding by origin form: the request line's URL loses its scheme and host.
    let rest = place.strip_prefix("http://").ok_or(io::ErrorKind::InvalidData)?;
    let (host, _) = rest.split_once('/').ok_or(io::ErrorKind::InvalidData)?;
    let upstream = TcpStream::connect(host)?;
    (&upstream).write_all(text.replacen(&format!("http://{host}"), "", 1).as_bytes())?;
    join(reader, client, upstream)
}

fn join(mut from_client: BufReader<TcpStream>, mut client: TcpStream, upstream: TcpStream) -> io::Result<()> {
    let mut to_upstream = upstream.try_clone()?;
    let up = std::thread::spawn(move || {
        let _ = copy(&mut from_client, &mut to_upstream);
        let _ = to_upstream.shutdown(std::net::Shutdown::Write);
    });
    let mut from_upstream = upstream;
    let _ = copy(&mut from_upstream, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = up.join();
    Ok(())
}

/// Piece by piece: `io::copy` may wait for a full buffer, and a stream must pass as it comes.
fn copy(from: &mut impl io::Read, to: &mut TcpStream) -> io::Result<()> {
    let mut piece = [0; 16384];
    loop {
        match from.take(piece.len() as u64).read(&mut piece)? {
            0 => return Ok(()),
            read => to.write_all(&piece[..read])?,
        }
    }
}
