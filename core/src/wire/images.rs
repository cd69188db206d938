//! OpenAI Images streams: committed on their head (F11), so nothing is decided here, only told.

use super::facts::Class;
use super::json::{Cursor, Parsed};

/// What the event with this data is. No event of an image stream ends it, and nothing in it is malformed.
pub(super) fn read(data: &[u8]) -> Class {
    fn carries(data: &[u8]) -> Parsed<Class> {
        let (mut error, mut content) = (false, false);
        let mut buffer = [0; 64];
        let mut cursor = Cursor::new(data);
        cursor.object(|c, key| {
            match key.word(&mut buffer) {
                b"error" => error |= c.tells_error()?,
                b"b64_json" | b"partial_image_b64" | b"url" | b"data" => content |= c.filled()?,
                _ => c.skip()?,
            }
            Ok(())
        })?;
        cursor.end()?;
        Ok(match (error, content) {
            (true, _) => Class::Error,
            (false, true) => Class::Content,
            (false, false) => Class::Opener,
        })
    }
    carries(data).unwrap_or(Class::Opener)
}
