//! SOCKS5 (RFC 1928) and its login by user and password (RFC 1929), as far as a client needs them.

use std::io;
use std::net::IpAddr;

use smol::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;

/// Has the proxy at the other end of `stream` connect to `host` and `port`.
pub(super) async fn connect<S>(
    stream: &mut S,
    login: Option<&(String, String)>,
    host: &str,
    port: u16,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let methods: &[u8] = if login.is_some() { &[NO_LOGIN, PASSWORD] } else { &[NO_LOGIN] };
    let mut hello = vec![VERSION, methods.len() as u8];
    hello.extend_from_slice(methods);
    stream.write_all(&hello).await?;
    match (read::<2, _>(stream).await?, login) {
        ([VERSION, NO_LOGIN], _) => {}
        ([VERSION, PASSWORD], Some((user, password))) => {
            let mut words = vec![1];
            put_short(&mut words, user)?;
            put_short(&mut words, password)?;
            stream.write_all(&words).await?;
            if read::<2, _>(stream).await?[1] != 0 {
                return Err(refused("the proxy does not know this user and password"));
            }
        }
        _ => return Err(refused("the proxy wants another way to log in")),
    }
    let mut request = vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend_from_slice(&address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend_from_slice(&address.octets());
        }
        Err(_) => {
            request.push(3);
            put_short(&mut request, host)?;
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await?;
    let [version, reply, _, kind] = read::<4, _>(stream).await?;
    if version != VERSION || reply != 0 {
        return Err(refused("the proxy could not connect"));
    }
    // The address that it connected from: nobody needs it, but it stands before what the other side sends.
    let length = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(read::<1, _>(stream).await?[0]),
        _ => return Err(refused("the proxy's answer cannot be read")),
    };
    let mut address = vec![0; length + 2];
    stream.read_exact(&mut address).await
}

async fn read<const N: usize, S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn put_short(bytes: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let length = u8::try_from(text.len()).map_err(|_| refused("a name is too long for the proxy"))?;
    bytes.push(length);
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

fn refused(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smol::io::Cursor;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// A proxy that says what it was told to say, and keeps what it hears.
    struct Proxy {
        says: Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl AsyncRead for Proxy {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.says).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Proxy {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.heard.extend_from_slice(buf);
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn speak(says: &[u8], login: Option<(&str, &str)>, host: &str) -> (io::Result<()>, Vec<u8>, Vec<u8>) {
        let mut proxy = Proxy { says: Cursor::new(says.to_vec()), heard: Vec::new() };
        let login = login.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let done = smol::block_on(connect(&mut proxy, login.as_ref(), host, 443));
        let rest = proxy.says.get_ref()[proxy.says.position() as usize..].to_vec();
        (done, proxy.heard, rest)
    }

    #[test]
    fn a_name_goes_to_the_proxy_and_nothing_behind_its_answer_is_lost() {
        let says = [&[5, 0][..], &[5, 0, 0, 1, 9, 9, 9, 9, 0, 80], b"hello"].concat();
        let (done, heard, rest) = speak(&says, None, "a.test");
        done.unwrap();
        assert_eq!(heard, [&[5, 1, 0][..], &[5, 1, 0, 3, 6], b"a.test", &[1, 187]].concat());
        assert_eq!(rest, b"hello");
    }

    #[test]
    fn a_login_is_given_when_it_is_asked_for() {
        let says = [&[5, 2][..], &[1, 0], &[5, 0, 0, 3, 1, b'x', 0, 80]].concat();
        let (done, heard, _) = speak(&says, Some(("bob", "pw")), "::1");
        done.unwrap();
        assert!(heard.starts_with(&[5, 2, 0, 2, 1, 3, b'b', b'o', b'b', 2, b'p', b'w', 5, 1, 0, 4]), "{heard:?}");
    }

    #[test]
    fn refusals_and_broken_answers_are_errors() {
        let cases: [&[u8]; 6] =
            [&[5, 0xff], &[5, 2], &[4, 0], &[5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0], &[5, 0, 5, 0, 0, 9], &[5, 0, 5]];
        for says in cases {
            assert!(speak(says, None, "a.test").0.is_err(), "{says:?}");
        }
        assert!(speak(&[5, 2, 1, 1], Some(("bob", "no")), "a.test").0.is_err());
        assert!(speak(&[5, 0], None, &"a".repeat(256)).0.is_err());
    }
}
