//! Embeddings, images, token counts, and whatever passes through.

use surefoot_core::wire::Format;

use super::{Answer, Part, Piece, Style, content};

pub(super) fn image_stream(style: &Style, answer: &Answer) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = (0..answer.words.len().min(3))
        .map(|number| {
            let data = format!(
                r#"{{"type":"image_generation.partial_image","partial_image_index":{number},"b64_json":"aGk="}}"#
            );
            content(style.event("image_generation.partial_image", &data))
        })
        .collect();
    let data = r#"{"type":"image_generation.completed","b64_json":"aGlrZQ==","usage":{"total_tokens":9}}"#;
    pieces.push(Piece { bytes: style.event("image_generation.completed", data), part: Part::Content });
    pieces
}

pub(super) fn whole(format: Format, answer: &Answer) -> String {
    let (input, _) = answer.usage;
    match format {
        Format::Embeddings => format!(
            r#"{{"object":"list","data":[{{"object":"embedding","index":0,"embedding":[0.25,-0.5,1e-3]}}],"model":"up","usage":{{"prompt_tokens":{input},"total_tokens":{input}}}}}"#
        ),
        Format::Images => r#"{"created":1760000000,"data":[{"b64_json":"aGlrZQ=="}]}"#.to_owned(),
        Format::CountTokens => format!(r#"{{"input_tokens":{input}}}"#),
        _ => format!("raw bytes {:x}", answer.id),
    }
}
