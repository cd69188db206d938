//! Heads: read from what came so far, and written in one piece.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};

use super::{Framing, MAX_HEAD, MAX_HEADERS, MAX_TARGET, Malformed};

/// A request's head.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
}

/// A response's head.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
}

/// Takes a request's head off the front of `buf`; `None` when it is not complete yet.
pub(super) fn parse_request(buf: &mut BytesMut) -> Result<Option<RequestHead>, Malformed> {
    // Empty lines before a request are old clients' custom (RFC 9112, 2.2).
    let blank = buf.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if blank > 0 {
        let _ = buf.split_to(blank);
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(buf) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if buf.len() < MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Malformed::HeadTooLong),
        Err(_) => return Err(Malformed::Syntax),
    };
    let target = request.path.ok_or(Malformed::Syntax)?;
    if target.len() > MAX_TARGET {
        return Err(Malformed::TargetTooLong);
    }
    let method = request.method.and_then(|name| Method::from_bytes(name.as_bytes()).ok()).ok_or(Malformed::Syntax)?;
    let version = version(request.version)?;
    let (target, places) = (place(buf, target.as_bytes()), places(buf, request.headers));
    let head = buf.split_to(length).freeze();
    let uri = Uri::from_maybe_shared(head.slice(target)).map_err(|_| Malformed::Syntax)?;
    let headers = header_map(&head, &places)?;
    // Two of them would let the proxies on the way take the request for different hosts (RFC 9112, 3.2).
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(Malformed::Syntax);
    }
    Ok(Some(RequestHead { method, uri, version, headers }))
}

/// Takes a response's head off the front of `buf`; `None` when it is not complete yet.
pub(super) fn parse_response(buf: &mut BytesMut) -> Result<Option<ResponseHead>, Malformed> {
    let mut config = httparse::ParserConfig::default();
    // A lenient reading of what providers and the proxies before them send.
    config.allow_obsolete_multiline_headers_in_responses(true).allow_spaces_after_header_name_in_responses(true);
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match config.parse_response(&mut response, buf) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if buf.len() < MAX_HEAD => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Malformed::HeadTooLong),
        Err(_) => return Err(Malformed::Syntax),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed::Syntax)?;
    let version = version(response.version)?;
    let places = places(buf, response.headers);
    let head = buf.split_to(length).freeze();
    Ok(Some(ResponseHead { status, version, headers: header_map(&head, &places)? }))
}

fn version(minor: Option<u8>) -> Result<Version, Malformed> {
    match minor {
        Some(0) => Ok(Version::HTTP_10),
        Some(1) => Ok(Version::HTTP_11),
        _ => Err(Malformed::Syntax),
    }
}

type Place = std::ops::Range<usize>;

/// Where a part of `whole` stands in it.
fn place(whole: &[u8], part: &[u8]) -> Place {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

fn places(whole: &[u8], headers: &[httparse::Header<'_>]) -> Vec<(Place, Place)> {
    headers.iter().map(|header| (place(whole, header.name.as_bytes()), place(whole, header.value))).collect()
}

/// The headers, their values shared with the head's bytes.
fn header_map(head: &Bytes, places: &[(Place, Place)]) -> Result<HeaderMap, Malformed> {
    let mut headers = HeaderMap::with_capacity(places.len());
    for (name, value) in places {
        let name = HeaderName::from_bytes(&head[name.clone()]).map_err(|_| Malformed::Syntax)?;
        let value = match head.slice(value.clone()) {
            // A value folded over lines is one line with spaces (RFC 9112, 5.2).
            folded if folded.iter().any(|byte| matches!(byte, b'\r' | b'\n')) => unfolded(&folded),
            value => value,
        };
        headers.append(name, HeaderValue::from_maybe_shared(value).map_err(|_| Malformed::Syntax)?);
    }
    Ok(headers)
}

fn unfolded(value: &[u8]) -> Bytes {
    value.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// How a request's body ends. Whoever reads it otherwise than the sender meant lets requests be smuggled in: what is
/// not certain is refused (RFC 9112, 6.3).
pub(super) fn request_framing(head: &RequestHead) -> Result<Framing, Malformed> {
    let mut codings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return Ok(Framing::Length(content_length(&head.headers)?.unwrap_or(0)));
    };
    let only_chunked = codings.next().is_none() && coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if head.version == Version::HTTP_10 || !only_chunked {
        return Err(Malformed::Syntax);
    }
    Ok(Framing::Chunked)
}

/// How the body of a response to `method` ends.
pub(super) fn response_framing(head: &ResponseHead, method: &Method) -> Result<Framing, Malformed> {
    let code = head.status.as_u16();
    if *method == Method::HEAD || matches!(code, 100..=199 | 204 | 304) {
        return Ok(Framing::Length(0));
    }
    if head.headers.contains_key(header::TRANSFER_ENCODING) {
        return match (head.version, is_chunked(&head.headers)) {
            (Version::HTTP_10, _) => Err(Malformed::Syntax),
            (_, true) => Ok(Framing::Chunked),
            (_, false) => Ok(Framing::Close),
        };
    }
    Ok(content_length(&head.headers)?.map_or(Framing::Close, Framing::Length))
}

/// Whether `chunked` is the last coding.
fn is_chunked(headers: &HeaderMap) -> bool {
    let last = headers.get_all(header::TRANSFER_ENCODING).iter().next_back().and_then(|value| value.to_str().ok());
    let last = last.and_then(|value| value.rsplit(',').next()).map(str::trim);
    last.is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

/// The one length that all `content-length` headers agree on.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut found = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        for length in value.to_str().map_err(|_| Malformed::Syntax)?.split(',').map(str::trim) {
            // `parse` alone would take a plus sign.
            let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length.parse::<u64>().ok().filter(|_| digits).ok_or(Malformed::Syntax)?;
            if found.is_some_and(|found| found != length) {
                return Err(Malformed::Syntax);
            }
            found = Some(length);
        }
    }
    Ok(found)
}

/// Whether the connection ends behind a message.
pub(super) fn wants_close(version: Version, headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut tokens = values.flat_map(|value| value.split(',')).map(str::trim);
    let smuggling = headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH);
    let mut keep = version != Version::HTTP_10;
    let close = tokens.any(|token| {
        keep |= token.eq_ignore_ascii_case("keep-alive");
        token.eq_ignore_ascii_case("close")
    });
    close || !keep || smuggling
}

/// A request's head as bytes. `host` and `content-length` are written as given, whatever the headers say of them.
pub(super) fn encode_request(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    host: &[u8],
    length: Option<usize>,
) -> Bytes {
    let mut head = Vec::with_capacity(256 + headers.len() * 48);
    head.extend_from_slice(method.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(uri.to_string().as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    head.extend_from_slice(host);
    head.extend_from_slice(b"\r\n");
    let own = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];
    put_headers(&mut head, headers, &own);
    if let Some(length) = length {
        head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

/// A response's head as bytes. `framing` says how the body will end; `None` = there is none and none is spoken of.
pub(super) fn encode_response(
    status: StatusCode,
    version: Version,
    headers: &HeaderMap,
    framing: Option<Framing>,
    close: bool,
    date: &str,
) -> Bytes {
    let mut head = Vec::with_capacity(256 + headers.len() * 48);
    head.extend_from_slice(if version == Version::HTTP_10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    head.extend_from_slice(status.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(status.canonical_reason().unwrap_or("Unknown").as_bytes());
    head.extend_from_slice(b"\r\n");
    let mut own = vec![header::TRANSFER_ENCODING, header::CONNECTION];
    if framing.is_some() {
        own.push(header::CONTENT_LENGTH);
    }
    put_headers(&mut head, headers, &own);
    match framing {
        Some(Framing::Length(length)) => head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes()),
        Some(Framing::Chunked) => head.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Some(Framing::Close) | None => {}
    }
    match (close, version) {
        (true, _) => head.extend_from_slice(b"connection: close\r\n"),
        (false, Version::HTTP_10) => head.extend_from_slice(b"connection: keep-alive\r\n"),
        (false, _) => {}
    }
    if !headers.contains_key(header::DATE) {
        head.extend_from_slice(format!("date: {date}\r\n").as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

fn put_headers(head: &mut Vec<u8>, headers: &HeaderMap, except: &[HeaderName]) {
    for (name, value) in headers.iter().filter(|(name, _)| !except.contains(name)) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Result<Option<RequestHead>, Malformed> {
        parse_request(&mut BytesMut::from(text))
    }

    fn response(text: &str) -> Result<Option<ResponseHead>, Malformed> {
        parse_response(&mut BytesMut::from(text))
    }

    #[test]
    fn a_request_comes_complete_or_not_at_all_however_it_is_cut() {
        let text = "\r\nPOST /v1/x?a=b HTTP/1.1\r\nHost: a\r\nX-Two: 1\r\nx-two: 2\r\n\r\nbody";
        let end = text.len() - "body".len();
        for cut in 0..end {
            assert!(request(&text[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        let mut buf = BytesMut::from(text);
        let head = parse_request(&mut buf).unwrap().unwrap();
        assert_eq!((head.method, head.uri.to_string().as_str()), (Method::POST, "/v1/x?a=b"));
        assert_eq!(head.headers.get_all("x-two").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(&buf[..], b"body");
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_status() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(MAX_TARGET));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        let endless = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(MAX_HEAD));
        let cases = [
            ("\u{1}\u{2}\r\n\r\n", 400),
            ("GET / HTTP/2.0\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\na b: c\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400),
            (&long, 414),
            (&many, 431),
            (&endless, 431),
        ];
        for (text, status) in cases {
            assert_eq!(request(text).unwrap_err().status().as_u16(), status, "{:.40}", text);
        }
    }

    #[test]
    fn the_end_of_a_requests_body_is_certain_or_the_request_is_refused() {
        let framing = |version: &str, headers: &str| {
            let head = request(&format!("POST / HTTP/{version}\r\n{headers}\r\n")).unwrap().unwrap();
            (request_framing(&head), wants_close(head.version, &head.headers))
        };
        assert_eq!(framing("1.1", ""), (Ok(Framing::Length(0)), false));
        assert_eq!(framing("1.1", "content-length: 5\r\ncontent-length: 5\r\n"), (Ok(Framing::Length(5)), false));
        assert_eq!(framing("1.1", "transfer-encoding:  Chunked \r\n"), (Ok(Framing::Chunked), false));
        assert_eq!(framing("1.1", "transfer-encoding: chunked\r\ncontent-length: 5\r\n"), (Ok(Framing::Chunked), true));
        for unclear in [
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: +5\r\n",
            "content-length: -1\r\n",
            "content-length: \r\n",
            "content-length: 99999999999999999999\r\n",
            "transfer-encoding: chunked, gzip\r\n",
            "transfer-encoding: xchunked\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        ] {
            assert_eq!(framing("1.1", unclear).0, Err(Malformed::Syntax), "{unclear}");
        }
        assert_eq!(framing("1.0", "transfer-encoding: chunked\r\n").0, Err(Malformed::Syntax));
    }

    #[test]
    fn a_responses_body_ends_as_its_head_its_status_and_the_method_say() {
        let framing = |first: &str, headers: &str, method| {
            let head = response(&format!("{first}\r\n{headers}\r\n")).unwrap().unwrap();
            response_framing(&head, &method)
        };
        let ok = "HTTP/1.1 200 OK";
        assert_eq!(framing(ok, "content-length: 7\r\n", Method::GET), Ok(Framing::Length(7)));
        assert_eq!(framing(ok, "content-length: 7\r\n", Method::HEAD), Ok(Framing::Length(0)));
        assert_eq!(framing(ok, "transfer-encoding: chunked\r\n", Method::GET), Ok(Framing::Chunked));
        assert_eq!(framing(ok, "transfer-encoding: gzip\r\n", Method::GET), Ok(Framing::Close));
        assert_eq!(framing(ok, "", Method::GET), Ok(Framing::Close));
        assert_eq!(framing("HTTP/1.1 204 x", "content-length: 7\r\n", Method::GET), Ok(Framing::Length(0)));
        assert_eq!(framing("HTTP/1.0 200 OK", "transfer-encoding: chunked\r\n", Method::GET), Err(Malformed::Syntax));
        assert_eq!(framing(ok, "content-length: x\r\n", Method::GET), Err(Malformed::Syntax));
    }

    #[test]
    fn a_response_may_be_untidy_but_not_foreign() {
        let head = response("HTTP/1.1 200\r\nServer : x\r\nFolded: a\r\n b\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.headers["server"], "x");
        let folded = head.headers["folded"].to_str().unwrap();
        assert_eq!(folded.split_whitespace().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(response("SSH-2.0-OpenSSH_9.6\r\n").unwrap_err(), Malformed::Syntax);
        assert!(response("HTTP/1.1 2").unwrap().is_none());
    }

    #[test]
    fn a_connection_is_kept_unless_either_side_says_otherwise() {
        let close = |version: &str, headers: &str| {
            let head = response(&format!("HTTP/{version} 200 OK\r\n{headers}\r\n")).unwrap().unwrap();
            wants_close(head.version, &head.headers)
        };
        assert!(!close("1.1", "") && !close("1.1", "connection: x, Keep-Alive\r\n"));
        assert!(close("1.1", "connection: keep-alive, Close\r\n") && close("1.0", ""));
        assert!(!close("1.0", "connection: keep-alive\r\n"));
    }

    #[test]
    fn heads_are_written_with_their_own_framing_and_nobody_elses() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-a", "1"), ("content-length", "99"), ("transfer-encoding", "chunked"), ("host", "h")] {
            headers.append(name, value.parse().unwrap());
        }
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let asked = encode_request(&Method::POST, &"/a?b".parse().unwrap(), &headers, b"c:1", Some(2));
        assert_eq!(text(asked), "POST /a?b HTTP/1.1\r\nhost: c:1\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n");
        headers.remove(header::HOST);
        let told =
            |version, framing, close| text(encode_response(StatusCode::OK, version, &headers, framing, close, "D"));
        assert_eq!(
            told(Version::HTTP_11, Some(Framing::Chunked), false),
            "HTTP/1.1 200 OK\r\nx-a: 1\r\ntransfer-encoding: chunked\r\ndate: D\r\n\r\n"
        );
        assert_eq!(
            told(Version::HTTP_10, Some(Framing::Close), true),
            "HTTP/1.0 200 OK\r\nx-a: 1\r\nconnection: close\r\ndate: D\r\n\r\n"
        );
        assert!(told(Version::HTTP_11, None, false).contains("content-length: 99\r\n"), "a HEAD's own length stays");
    }
}
