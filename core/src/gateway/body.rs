//! What the gateway reads in a request's body, and the one thing that it changes there: the model's name (X1, X3).
//!
//! The body is scanned once; all other bytes go on as they came, key order and spacing included. The alternative, to
//! parse and print it anew, changes number forms and escapes, and costs a tree for bodies of many megabytes.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::form;
use crate::wire::Format;

/// Why a body cannot be served; the words are for the client, who gets a 400 (X3).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// No bytes.
    #[error("the request has no body; send a JSON object with a `model`")]
    Empty,
    /// Not UTF-8, so no JSON.
    #[error("the body is not valid UTF-8 (byte {0}), so it is no JSON")]
    NotUtf8(usize),
    /// JSON, or something else, that is no object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// Broken JSON.
    #[error("the body is not valid JSON: {0}")]
    BrokenJson(String),
    /// A form that cannot be read.
    #[error("the body is not a valid multipart form: {0}")]
    BrokenForm(&'static str),
    /// No model.
    #[error("`model` is missing; name the model that is to answer")]
    NoModel,
    /// A model that is no text.
    #[error("`model` must be a text")]
    ModelNotText,
    /// Two models: upstreams differ in which of them counts, so neither is sent.
    #[error("`model` is given more than once")]
    ModelTwice,
}

/// Where the model's name stands in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSlot {
    span: Range<usize>,
    name: Box<str>,
    json: bool,
}

impl ModelSlot {
    /// A slot for the bytes at `span`, which say `name`: a JSON text with its quotes, or a form's bare value.
    pub(super) fn new(span: Range<usize>, name: &str, json: bool) -> ModelSlot {
        ModelSlot { span, name: name.into(), json }
    }

    /// The client's name for the model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `body` with `model` in place of the client's name and every other byte untouched; the same bytes, not copied,
    /// when the names are equal.
    ///
    /// `body` is the one that the slot was found in; for any other the result is unspecified, but no panic.
    pub fn body_for(&self, body: &Bytes, model: &str) -> Bytes {
        if *self.name == *model {
            return body.clone();
        }
        let (Some(before), Some(after)) = (body.get(..self.span.start), body.get(self.span.end..)) else {
            return body.clone();
        };
        let value = if self.json { serde_json::Value::from(model).to_string() } else { model.to_owned() };
        let mut spliced = Vec::with_capacity(before.len() + value.len() + after.len());
        spliced.extend_from_slice(before);
        spliced.extend_from_slice(value.as_bytes());
        spliced.extend_from_slice(after);
        Bytes::from(spliced)
    }
}

/// What a body asks for, as far as the gateway cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The model and its place.
    pub slot: ModelSlot,
    /// A stream is wanted.
    pub stream: bool,
    /// The usage chunk of a stream is wanted.
    pub include_usage: bool,
    /// The answer must be JSON (G17).
    pub structured: bool,
    /// Where the body says the schema that the answer must fit, for a runtime that can check it (G17).
    pub schema: Option<Range<usize>>,
    /// Tokens it may use: a quarter of its text bytes, plus the answer's bound where it names one (G15).
    pub tokens: u32,
}

/// Reads a body of `format`: a form where `content_type` says so and the protocol has forms, else JSON.
///
/// Errors are the client's (X3). Values of the wrong type other than `model` are the upstream's to refuse.
pub fn read(format: Format, content_type: Option<&str>, body: &[u8]) -> Result<Wish, BodyError> {
    match content_type.filter(|_| format == Format::Images).and_then(form::parameters) {
        Some(parameters) => form::read(parameters, body),
        None => read_json(format, body),
    }
}

fn read_json(format: Format, body: &[u8]) -> Result<Wish, BodyError> {
    let text = core::str::from_utf8(body).map_err(|error| BodyError::NotUtf8(error.valid_up_to()))?;
    match text.trim_start_matches([' ', '\t', '\n', '\r']).bytes().next() {
        None => return Err(BodyError::Empty),
        Some(b'{') => {}
        // Checked here because the parser's own message would repeat the value, however long. A value that is no
        // JSON at all is told as such.
        Some(_) => {
            let whole = serde_json::from_str::<IgnoredAny>(text);
            return Err(whole.map_or_else(broken, |_| BodyError::NotAnObject));
        }
    }
    let mut parser = serde_json::Deserializer::from_str(text);
    let head = parser.deserialize_map(HeadVisitor).map_err(broken)?;
    parser.end().map_err(broken)?;
    if head.models > 1 {
        return Err(BodyError::ModelTwice);
    }
    let model = head.model.ok_or(BodyError::NoModel)?.get();
    let name: String = serde_json::from_str(model).map_err(|_| BodyError::ModelNotText)?;
    let asked = head.output_format(format);
    Ok(Wish {
        slot: ModelSlot::new(place(text, model), &name, true),
        stream: head.stream.is_some_and(says_true),
        include_usage: head
            .stream_options
            .and_then(lenient::<StreamOptions>)
            .is_some_and(|o| o.include_usage == Some(true)),
        structured: asked.as_ref().is_some_and(OutputFormat::is_json),
        schema: asked.as_ref().and_then(OutputFormat::schema).map(|schema| place(text, schema)),
        tokens: head.tokens(format, body.len()),
    })
}

/// Where a part of a text stands in it.
fn place(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + part.len()
}

fn broken(error: serde_json::Error) -> BodyError {
    BodyError::BrokenJson(format!("{error}"))
}

/// The top-level keys that mean something here, their values unread.
#[derive(Default)]
struct Head<'a> {
    model: Option<&'a RawValue>,
    models: u32,
    stream: Option<&'a RawValue>,
    stream_options: Option<&'a RawValue>,
    response_format: Option<&'a RawValue>,
    text: Option<&'a RawValue>,
    output_format: Option<&'a RawValue>,
    output_config: Option<&'a RawValue>,
    max_tokens: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Model,
    Stream,
    StreamOptions,
    ResponseFormat,
    Text,
    OutputFormat,
    OutputConfig,
    #[serde(alias = "max_completion_tokens", alias = "max_output_tokens")]
    MaxTokens,
    #[serde(other)]
    Other,
}

struct HeadVisitor;

impl<'de> Visitor<'de> for HeadVisitor {
    type Value = Head<'de>;

    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Head<'de>, A::Error> {
        let mut head = Head::default();
        while let Some(field) = map.next_key()? {
            let place = match field {
                Field::Model => {
                    head.models += 1;
                    &mut head.model
                }
                Field::Stream => &mut head.stream,
                Field::StreamOptions => &mut head.stream_options,
                Field::ResponseFormat => &mut head.response_format,
                Field::Text => &mut head.text,
                Field::OutputFormat => &mut head.output_format,
                Field::OutputConfig => &mut head.output_config,
                Field::MaxTokens => &mut head.max_tokens,
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *place = Some(map.next_value()?);
        }
        Ok(head)
    }
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct OutputFormat<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    /// Chat keeps the schema one deeper than the others.
    #[serde(borrow)]
    json_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WithSchema<'a> {
    #[serde(borrow)]
    schema: Option<&'a RawValue>,
}

impl<'a> OutputFormat<'a> {
    fn is(&self, word: &str) -> bool {
        self.kind.is_some_and(|kind| kind.get() == word)
    }

    fn is_json(&self) -> bool {
        self.is(r#""json_object""#) || self.is(r#""json_schema""#)
    }

    fn schema(&self) -> Option<&'a str> {
        if !self.is(r#""json_schema""#) {
            return None;
        }
        let inner = self.json_schema.and_then(lenient::<WithSchema<'_>>).and_then(|inner| inner.schema);
        inner.or(self.schema).map(RawValue::get)
    }
}

#[derive(Deserialize)]
struct WithFormat<'a> {
    #[serde(borrow)]
    format: Option<OutputFormat<'a>>,
}

impl<'a> Head<'a> {
    /// How the answer is to look. Each protocol has its own place for it; `response_format` of images is another thing.
    fn output_format(&self, format: Format) -> Option<OutputFormat<'a>> {
        match format {
            Format::Chat => self.response_format.and_then(lenient),
            Format::Responses => self.text.and_then(lenient::<WithFormat<'_>>).and_then(|text| text.format),
            Format::Messages => self
                .output_format
                .and_then(lenient)
                .or_else(|| self.output_config.and_then(lenient::<WithFormat<'_>>).and_then(|config| config.format)),
            Format::CountTokens | Format::Embeddings | Format::Images | Format::Raw => None,
        }
    }

    fn tokens(&self, format: Format, bytes: usize) -> u32 {
        if format == Format::CountTokens {
            return 0;
        }
        let answer = self.max_tokens.and_then(lenient::<u32>).unwrap_or(0);
        estimate(bytes).saturating_add(answer)
    }
}

/// Four bytes a token: the field's rule of thumb. Corrected by the answer's usage.
pub(super) fn estimate(bytes: usize) -> u32 {
    u32::try_from(bytes / 4).unwrap_or(u32::MAX)
}

fn says_true(raw: &RawValue) -> bool {
    raw.get() == "true"
}

/// A value of the wrong shape counts as absent: the upstream is the one to refuse it.
fn lenient<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(format: Format, body: &str) -> Result<Wish, BodyError> {
        read(format, Some("application/json"), body.as_bytes())
    }

    #[test]
    fn only_the_top_level_model_is_swapped_and_every_other_byte_stays() {
        let body = "{ \"messages\" : [ {\"content\":\"\\u0048i \\/ \\\"model\\\":\\\"m\\\"\"} ] , \"n\":1e0,\n \"metadata\" : {\"model\":\"m\"},\t\"mod\\u0065l\"  :\t\"m\" , \"stop\":null }";
        let wish = json(Format::Chat, body).unwrap();
        let swapped = wish.slot.body_for(&Bytes::from(body), "org/\"other\":free");
        let expected = body.replace(":\t\"m\" ,", ":\t\"org/\\\"other\\\":free\" ,");
        assert_ne!(expected, body);
        assert_eq!(swapped, expected.as_bytes());
    }

    #[test]
    fn the_same_name_gives_the_same_bytes_without_a_copy() {
        let body = Bytes::from(r#"{"model":"up\u002dmodel"}"#);
        let wish = read(Format::Chat, None, &body).unwrap();
        assert_eq!(wish.slot.name(), "up-model");
        assert_eq!(wish.slot.body_for(&body, "up-model").as_ptr(), body.as_ptr());
    }

    #[test]
    fn a_body_that_cannot_be_served_says_why() {
        let cases = [
            "",
            " \n",
            r#"{"model":"m","messages":["#,
            r#"{"model":"m",}"#,
            "model=m",
            r#"{"model":"m"} x"#,
            r#"["m"]"#,
            r#""m""#,
            "null",
            "{}",
            r#"{"model":5}"#,
            r#"{"model":["m"]}"#,
            r#"{"model":null}"#,
            r#"{"model":"a","model":"a"}"#,
            r#"{"model":"\ud800"}"#,
        ];
        let told: Vec<String> =
            cases.iter().map(|body| format!("{body:?}: {}", json(Format::Chat, body).unwrap_err())).collect();
        insta::assert_snapshot!(told.join("\n"));
        assert_eq!(read(Format::Chat, None, b"{\"model\":\"\xff\xfe\"}"), Err(BodyError::NotUtf8(10)));
    }

    #[test]
    fn wishes_are_read_where_each_protocol_has_them() {
        let structured = |format, body| json(format, body).unwrap().structured;
        let chat = r#"{"model":"m","response_format":{"schema":1,"type":"json_object"}}"#;
        assert!(structured(Format::Chat, chat));
        assert!(!structured(Format::Images, chat) && !structured(Format::Responses, chat));
        assert!(!structured(Format::Chat, r#"{"model":"m","response_format":{"type":"text"}}"#));
        assert!(!structured(Format::Chat, r#"{"model":"m","response_format":"json_object"}"#));
        assert!(structured(Format::Responses, r#"{"model":"m","text":{"format":{"type":"json_schema","name":"x"}}}"#));
        assert!(structured(Format::Messages, r#"{"model":"m","output_config":{"format":{"type":"json_schema"}}}"#));
    }

    #[test]
    fn a_schema_is_found_where_each_protocol_has_it_g17() {
        let schema = |format, body: &str| json(format, body).unwrap().schema.map(|place| body[place].to_owned());
        let chat = r#"{"model":"m","response_format":{"type":"json_schema","json_schema":{"name":"x","schema": {"type":"object"} }}}"#;
        assert_eq!(schema(Format::Chat, chat).as_deref(), Some(r#"{"type":"object"}"#));
        assert_eq!(schema(Format::Embeddings, chat), None);
        let responses = r#"{"text":{"format":{"schema":true,"type":"json_schema"}},"model":"m"}"#;
        assert_eq!(schema(Format::Responses, responses).as_deref(), Some("true"));
        for key in ["output_format", "output_config"] {
            let format = r#"{"type":"json_schema","schema":{"a":"\u00e9"}}"#;
            let value = if key == "output_config" { format!(r#"{{"format":{format}}}"#) } else { format.to_owned() };
            let body = format!(r#"{{"model":"m","{key}":{value}}}"#);
            assert_eq!(schema(Format::Messages, &body).as_deref(), Some(r#"{"a":"\u00e9"}"#), "{body}");
        }
        for none in [
            r#"{"model":"m","response_format":{"type":"json_object","schema":{}}}"#,
            r#"{"model":"m","response_format":{"type":"json_schema","json_schema":"x"}}"#,
            r#"{"model":"m","response_format":{"type":"json_schema"}}"#,
        ] {
            assert_eq!(schema(Format::Chat, none), None, "{none}");
        }
    }

    #[test]
    fn stream_wishes_are_read_leniently() {
        let wish =
            json(Format::Chat, r#"{"stream":true,"stream_options":{"include_usage":true},"model":"m"}"#).unwrap();
        assert!(wish.stream && wish.include_usage);
        let wish = json(Format::Chat, r#"{"stream":"true","stream_options":[],"model":"m"}"#).unwrap();
        assert!(!wish.stream && !wish.include_usage);
    }

    #[test]
    fn tokens_are_estimated_from_the_bytes_and_the_answers_bound() {
        let tokens = |format, body| json(format, body).unwrap().tokens;
        assert_eq!(tokens(Format::Chat, r#"{"model":"m"}"#), 3);
        assert_eq!(tokens(Format::Chat, r#"{"model":"m","max_completion_tokens":100}"#), 10 + 100);
        assert_eq!(tokens(Format::Chat, r#"{"model":"m","max_tokens":4294967295}"#), u32::MAX);
        assert_eq!(tokens(Format::Chat, r#"{"model":"m","max_tokens":-1}"#), 7);
        assert_eq!(tokens(Format::CountTokens, r#"{"model":"m","max_tokens":64}"#), 0);
    }

    #[test]
    fn deep_nesting_is_no_danger() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert!(json(Format::Chat, &format!(r#"{{"model":"m","x":{deep}}}"#)).is_ok());
        assert_eq!(json(Format::Chat, &format!(r#"{{"model":{deep}}}"#)), Err(BodyError::ModelNotText));
        assert!(json(Format::Chat, &format!(r#"{{"model":"m","response_format":{deep}}}"#)).is_ok());
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        use serde_json::Value;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("model|stream|[a-z\"\\\\]{0,6}", inner), 0..4)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(body: Vec<u8>, content_type: Option<String>) {
            for format in Format::ALL {
                let _ = read(format, content_type.as_deref(), &body);
            }
        }

        #[test]
        fn splicing_changes_the_models_value_and_nothing_else(
            mut object in prop::collection::vec(("[a-z\"\\\\]{0,8}", value()), 0..6), name: String, new: String, at: prop::sample::Index,
        ) {
            object.retain(|(key, _)| key != "model");
            object.insert(at.index(object.len() + 1), ("model".into(), name.clone().into()));
            let mut tree = serde_json::Value::Object(object.into_iter().collect());
            let body = Bytes::from(serde_json::to_string_pretty(&tree).unwrap());
            let wish = read(Format::Chat, None, &body).unwrap();
            prop_assert_eq!(wish.slot.name(), &name);
            let spliced = wish.slot.body_for(&body, &new);
            let kept = (body.len() - wish.slot.span.len(), spliced.len());
            tree["model"] = new.clone().into();
            prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(&spliced).unwrap(), tree);
            if name != new {
                prop_assert_eq!(kept.0 + serde_json::to_string(&new).unwrap().len(), kept.1);
            }
        }
    }
}
