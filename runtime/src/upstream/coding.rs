//! Content codings: what comes compressed although identity was asked for is opened before it is looked at (X5).

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use surefoot_core::event::Fault;

/// To how much a compressed answer may open, in bytes; beyond it is drifted.
pub const OPENED_MAX: usize = 64 << 20;

/// Opens one body. Every error is final.
pub(super) struct Decoder {
    inner: Inner,
    fed: bool,
}

enum Inner {
    Gzip(MultiGzDecoder<Bounded>),
    Zlib(ZlibDecoder<Bounded>),
    Deflate(DeflateDecoder<Bounded>),
    /// `deflate` means a zlib stream, but some servers send a bare one: the first two bytes tell.
    Undecided(Vec<u8>),
}

impl Decoder {
    /// The decoder for a `content-encoding` header's values, none for identity.
    ///
    /// # Errors
    ///
    /// [`Fault::Coding`] for a coding that cannot be opened here, several on top of each other included.
    pub(super) fn new<'a>(codings: impl Iterator<Item = &'a str>) -> Result<Option<Decoder>, Fault> {
        let each = codings.flat_map(|value| value.split(',')).map(str::trim);
        let mut real = each.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"));
        let Some(coding) = real.next() else { return Ok(None) };
        if real.next().is_some() {
            return Err(Fault::Coding);
        }
        let inner = match coding.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Inner::Gzip(MultiGzDecoder::new(Bounded::default())),
            "deflate" => Inner::Undecided(Vec::new()),
            _ => return Err(Fault::Coding),
        };
        Ok(Some(Decoder { inner, fed: false }))
    }

    /// Opens a chunk; what comes out may be empty.
    ///
    /// # Errors
    ///
    /// [`Fault::Coding`] for bytes that do not fit the coding, [`Fault::TooLarge`] beyond [`OPENED_MAX`].
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Result<Bytes, Fault> {
        self.fed |= !chunk.is_empty();
        let written = match &mut self.inner {
            Inner::Gzip(decoder) => decoder.write_all(chunk).and_then(|()| decoder.flush()),
            Inner::Zlib(decoder) => decoder.write_all(chunk).and_then(|()| decoder.flush()),
            Inner::Deflate(decoder) => decoder.write_all(chunk).and_then(|()| decoder.flush()),
            Inner::Undecided(held) => {
                held.extend_from_slice(chunk);
                let Some(zlib) = is_zlib(held) else { return Ok(Bytes::new()) };
                let held = std::mem::take(held);
                self.inner = match zlib {
                    true => Inner::Zlib(ZlibDecoder::new(Bounded::default())),
                    false => Inner::Deflate(DeflateDecoder::new(Bounded::default())),
                };
                return self.feed(&held);
            }
        };
        let opened = self.take();
        written.map_err(fault)?;
        Ok(opened)
    }

    /// The body is complete: what is left to come out.
    ///
    /// # Errors
    ///
    /// [`Fault::Coding`] when the coding is not at its end. A body without any bytes is fine: it had nothing to code.
    pub(super) fn finish(&mut self) -> Result<Bytes, Fault> {
        if !self.fed {
            return Ok(Bytes::new());
        }
        let done = match &mut self.inner {
            Inner::Gzip(decoder) => decoder.try_finish(),
            Inner::Zlib(decoder) => decoder.try_finish(),
            Inner::Deflate(decoder) => decoder.try_finish(),
            Inner::Undecided(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        done.map_err(fault)?;
        Ok(self.take())
    }

    fn take(&mut self) -> Bytes {
        let out = match &mut self.inner {
            Inner::Gzip(decoder) => decoder.get_mut(),
            Inner::Zlib(decoder) => decoder.get_mut(),
            Inner::Deflate(decoder) => decoder.get_mut(),
            Inner::Undecided(_) => return Bytes::new(),
        };
        Bytes::from(std::mem::take(&mut out.opened))
    }
}

fn is_zlib(first: &[u8]) -> Option<bool> {
    let [method, flags, ..] = first else { return None };
    Some(method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0)
}

fn fault(error: io::Error) -> Fault {
    if error.kind() == io::ErrorKind::FileTooLarge { Fault::TooLarge } else { Fault::Coding }
}

/// Collects what was opened and refuses more than its share: a small body can open to any size.
#[derive(Default)]
struct Bounded {
    opened: Vec<u8>,
    total: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.total = self.total.saturating_add(bytes.len());
        if self.total > OPENED_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.opened.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    const TEXT: &[u8] = b"data: {\"choices\":[]}\n\ndata: [DONE]\n\n";

    fn packed(coding: &str) -> Vec<u8> {
        let level = Compression::default();
        match coding {
            "gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(TEXT).unwrap();
                encoder.finish().unwrap()
            }
            "zlib" => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(TEXT).unwrap();
                encoder.finish().unwrap()
            }
            _ => {
                let mut encoder = DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(TEXT).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    fn open(coding: &str, body: &[u8], chunk: usize) -> Result<Vec<u8>, Fault> {
        let mut decoder = Decoder::new([coding].into_iter())?.expect("a coding");
        let mut out = Vec::new();
        for chunk in body.chunks(chunk) {
            out.extend_from_slice(&decoder.feed(chunk)?);
        }
        out.extend_from_slice(&decoder.finish()?);
        Ok(out)
    }

    #[test]
    fn known_codings_open_in_any_chunking() {
        for chunk in [1, 3, 4096] {
            assert_eq!(open("GZip", &packed("gzip"), chunk).unwrap(), TEXT);
            assert_eq!(open("x-gzip, identity", &packed("gzip"), chunk).unwrap(), TEXT);
            assert_eq!(open("deflate", &packed("zlib"), chunk).unwrap(), TEXT);
            assert_eq!(open("deflate", &packed("raw"), chunk).unwrap(), TEXT);
        }
    }

    #[test]
    fn what_is_ready_comes_out_with_its_chunk() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(TEXT).unwrap();
        encoder.flush().unwrap();
        let mut decoder = Decoder::new(["gzip"].into_iter()).unwrap().unwrap();
        assert_eq!(decoder.feed(encoder.get_ref()).unwrap(), TEXT);
    }

    #[test]
    fn a_cut_foreign_or_unknown_coding_is_a_fault() {
        let whole = packed("gzip");
        for cut in 1..whole.len() {
            assert_eq!(open("gzip", &whole[..cut], 5), Err(Fault::Coding), "cut at {cut}");
        }
        assert_eq!(open("gzip", TEXT, 7), Err(Fault::Coding));
        assert_eq!(open("deflate", &packed("zlib")[..9], 2), Err(Fault::Coding));
        for unknown in ["br", "zstd", "x-snappy", "gzip, gzip"] {
            assert_eq!(Decoder::new([unknown].into_iter()).err(), Some(Fault::Coding), "{unknown}");
        }
    }

    #[test]
    fn identity_and_an_empty_body_need_no_opening() {
        assert!(Decoder::new(["identity", ""].into_iter()).unwrap().is_none());
        assert!(Decoder::new([].into_iter()).unwrap().is_none());
        assert_eq!(open("gzip", b"", 1).unwrap(), b"");
    }

    #[test]
    fn a_bomb_is_too_large() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let zeros = vec![0_u8; 1 << 20];
        for _ in 0..65 {
            encoder.write_all(&zeros).unwrap();
        }
        assert_eq!(open("gzip", &encoder.finish().unwrap(), 65536), Err(Fault::TooLarge));
    }
}
