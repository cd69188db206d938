//! An HTTP/1.1 client over a plain socket. It does what it is told and no more: it can stop reading, leave in the middle,
//! and it sees every byte, which a client library would hide.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    timeout: Duration,
}

/// A request of any method without a body.
pub fn request(method: &str, path: &str) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
        timeout: Duration::from_secs(30),
    }
}

/// A POST of JSON.
pub fn post(path: &str, json: &serde_json::Value) -> Request {
    let mut request = request("POST", path).header("content-type", "application/json");
    request.body = json.to_string().into_bytes();
    request
}

impl Request {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// How long to wait for anything to come.
    pub fn timeout(mut self, timeout: Duration) -> Request {
        self.timeout = timeout;
        self
    }

    /// Connects and sends; what comes back is the caller's to read.
    pub fn start(&self, addr: &str) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", self.body.len()));
        let mut message = head.into_bytes();
        message.extend_from_slice(&self.body);
        (&stream).write_all(&message)?;
        Ok(stream)
    }

    /// Connects, sends, and reads the head of the answer.
    pub fn send(&self, addr: &str) -> io::Result<Open> {
        Open::read_head(BufReader::new(self.start(addr)?))
    }

    /// The whole answer.
    pub fn fetch(&self, addr: &str) -> io::Result<Answer> {
        self.send(addr)?.finish()
    }
}

/// An answer whose body is still on its way.
#[derive(Debug)]
pub struct Open {
    /// The status.
    pub status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    framing: Framing,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Chunked,
    Length(u64),
    Close,
    Done,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value; `""` when it is absent.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Open {
    fn read_head(mut reader: BufReader<TcpStream>) -> io::Result<Open> {
        let status_line = line(&mut reader)?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| wrong(&format!("no status line: {status_line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let header = line(&mut reader)?;
            match header.split_once(':') {
                _ if header.is_empty() => break,
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                None => return Err(wrong(&format!("no header: {header:?}"))),
            }
        }
        let framing = if header(&headers, "transfer-encoding").eq_ignore_ascii_case("chunked") {
            Framing::Chunked
        } else {
            header(&headers, "content-length").parse().map_or(Framing::Close, Framing::Length)
        };
        Ok(Open { status, headers, reader, framing })
    }

    /// A header's value; `""` when it is absent.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// The next piece of the body, as it comes; `None` at its end.
    pub fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self.framing {
            Framing::Done => Ok(None),
            Framing::Chunked => {
                let size = line(&mut self.reader)?;
                let size = usize::from_str_radix(&size, 16).map_err(|_| wrong(&format!("no chunk size: {size:?}")))?;
                let mut chunk = vec![0; size];
                self.reader.read_exact(&mut chunk)?;
                line(&mut self.reader)?;
                if size == 0 {
                    self.framing = Framing::Done;
                    return Ok(None);
                }
                Ok(Some(chunk))
            }
            Framing::Length(left) => {
                let mut chunk = vec![0; usize::try_from(left.min(65536)).unwrap_or(65536)];
                self.reader.read_exact(&mut chunk)?;
                let left = left - chunk.len() as u64;
                self.framing = if left == 0 { Framing::Done } else { Framing::Length(left) };
                Ok((!chunk.is_empty()).then_some(chunk))
            }
            Framing::Close => {
                let mut chunk = vec![0; 65536];
                let read = self.reader.read(&mut chunk)?;
                chunk.truncate(read);
                Ok((read > 0).then_some(chunk))
            }
        }
    }

    /// Reads the rest. An answer cut short is an error.
    pub fn finish(mut self) -> io::Result<Answer> {
        let mut body = Vec::new();
        while let Some(chunk) = self.chunk()? {
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status: self.status, headers: self.headers, body })
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers.iter().find(|(header, _)| header == name).map_or("", |(_, value)| value)
}

fn line(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
