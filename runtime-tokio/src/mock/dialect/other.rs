//! Embeddings, images and models.

use serde_json::{Value, json};

use super::{Event, Part, Say};
use crate::mock::ask::Ask;

pub(super) fn embeddings(ask: &Ask, say: &Say) -> Value {
    let inputs = if say.hollow { &[] } else { ask.inputs.as_slice() };
    let data = inputs.iter().enumerate().map(|(index, input)| {
        let vector = vector(input, ask.dimensions);
        let embedding = if ask.base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            json!(base64(&bytes))
        } else {
            json!(vector)
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    json!({
        "object": "list", "data": data.collect::<Vec<_>>(), "model": say.model,
        "usage": { "prompt_tokens": say.usage.0, "total_tokens": say.usage.0 }
    })
}

/// The same text has the same vector: numbers from an FNV-1a hash of it.
fn vector(input: &str, dimensions: usize) -> Vec<f32> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut stir = |byte: u8| {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        hash
    };
    input.bytes().for_each(|byte| {
        stir(byte);
    });
    (0..dimensions).map(|index| f32::from((stir(index as u8) >> 48) as u16) / 32768.0 - 1.0).collect()
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let sextet = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= group.len() { char::from(ALPHABET[sextet]) } else { '=' });
        }
    }
    text
}

/// A PNG of one transparent pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

fn image_usage(say: &Say) -> Value {
    let (input, output) = say.usage;
    json!({
        "input_tokens": input, "input_tokens_details": { "text_tokens": input, "image_tokens": 0 },
        "output_tokens": output, "total_tokens": input + output
    })
}

pub(super) fn images(ask: &Ask, say: &Say) -> Value {
    let count = if say.hollow { 0 } else { say.n };
    let image = if ask.urls {
        json!({ "url": "https://images.invalid/mock.png", "revised_prompt": say.text() })
    } else {
        json!({ "b64_json": PIXEL, "revised_prompt": say.text() })
    };
    json!({ "created": say.created, "data": vec![image; count], "usage": image_usage(say) })
}

pub(super) fn image_events(edit: bool, say: &Say) -> Vec<Event> {
    let (partial, completed) = if edit {
        ("image_edit.partial_image", "image_edit.completed")
    } else {
        ("image_generation.partial_image", "image_generation.completed")
    };
    let image = json!({
        "type": partial, "b64_json": PIXEL, "created_at": say.created, "size": "1024x1024", "quality": "low",
        "background": "transparent", "output_format": "png", "partial_image_index": 0
    });
    let mut last = image.clone();
    last["type"] = json!(completed);
    last["usage"] = image_usage(say);
    if let Value::Object(fields) = &mut last {
        fields.shift_remove("partial_image_index");
    }
    if say.hollow {
        return Vec::new();
    }
    vec![Event::typed(image, partial, Part::Content), Event::typed(last, completed, Part::Terminal)]
}

/// One model with the fields of both families.
pub(super) fn model(name: &str, say: &Say) -> Value {
    json!({
        "id": name, "object": "model", "type": "model", "display_name": name, "created": say.created,
        "created_at": "2025-01-01T00:00:00Z", "owned_by": "mock"
    })
}

pub(super) fn models(names: &[String], say: &Say) -> Value {
    let names = if say.hollow { &[] } else { names };
    let data: Vec<Value> = names.iter().map(|name| model(name, say)).collect();
    json!({ "object": "list", "data": data, "has_more": false, "first_id": names.first(), "last_id": names.last() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_the_rfc_has_it() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn a_text_has_one_vector_and_another_text_another() {
        assert_eq!(vector("a", 4), vector("a", 4));
        assert_ne!(vector("a", 4), vector("b", 4));
        assert!(vector("a", 500).iter().all(|value| (-1.0..=1.0).contains(value)));
    }
}
