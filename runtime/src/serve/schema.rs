//! Whether a JSON answer fits the schema that its request brought (G17).
//!
//! The schema is the client's, the answer the upstream's, and a check may cost neither a core nor a stack. So schemas are
//! checked up to a size, patterns run in linear time, nothing is fetched, and every reference that is followed counts:
//! a handful of definitions that refer to each other twice take two to the power of their number. What cannot be checked
//! within these bounds fits, and so does everything under a schema that makes no sense: the answer need only be JSON then.
//! All bounds are counts of the data, none is a time, so that the same answer gets the same verdict everywhere.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jsonschema::paths::Location;
use jsonschema::{Draft, Keyword, PatternOptions, ValidationError};
use serde_json::{Map, Value, json};
use surefoot_core::call::Schema;

/// Schemas beyond this are not checked; providers stop at about twice as much.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Bytes of the schema times bytes of the answer: what comparing each part of one with each of the other may take.
const MAX_PRODUCT: usize = 1 << 30;
/// References that one check may follow.
const MAX_REFERENCES: u32 = 100_000;
/// Bytes of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The stack of a check, of which only what is used is ever there, and what references may use of it.
const STACK_BYTES: usize = 64 << 20;
const MAX_DEPTH_BYTES: usize = 32 << 20;

/// The keyword that counts. None of the clients' begins like this.
const COUNTED: &str = "!counted";

/// A schema of a request.
#[derive(Debug)]
pub(super) struct RequestSchema {
    text: Box<str>,
}

impl RequestSchema {
    /// The schema in these bytes; `None` for one that is not checked.
    pub(super) fn new(text: &[u8]) -> Option<RequestSchema> {
        if text.len() > MAX_SCHEMA_BYTES {
            tracing::debug!(bytes = text.len(), "the request's schema is too large to be checked");
            return None;
        }
        Some(RequestSchema { text: str::from_utf8(text).ok()?.into() })
    }
}

impl Schema for RequestSchema {
    fn fits(&self, text: &str) -> bool {
        if self.text.len().saturating_mul(text.len()) > MAX_PRODUCT {
            return true;
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES);
            let checking = thread.spawn_scoped(scope, || fits(&self.text, text));
            // An end by unwinding is one that went beyond its bounds.
            checking.is_ok_and(|checking| checking.join().unwrap_or(None).unwrap_or(true))
        })
    }
}

/// The verdict; `None` without one.
fn fits(schema: &str, text: &str) -> Option<bool> {
    let bounds = Arc::new(Bounds { left: AtomicU32::new(MAX_REFERENCES), base: stack_pointer() });
    let mut schema: Value = serde_json::from_str(schema).ok()?;
    count_references(&mut schema);
    let compiled = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
        .with_keyword(COUNTED, counted_by(bounds))
        .build(&schema);
    match compiled {
        Ok(compiled) => Some(compiled.is_valid(&serde_json::from_str(text).ok()?)),
        Err(_) => {
            tracing::debug!("the request's schema makes no sense: its answer need only be JSON");
            None
        }
    }
}

/// Puts the counting keyword in front of every reference. Into an `allOf`, whose order holds: beside a reference it would
/// be looked at after it. Other drafts do not look beside a reference at all, so their names go.
fn count_references(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(count_references),
        Value::Object(members) => {
            members.values_mut().for_each(count_references);
            if members.get("$schema").is_some_and(Value::is_string) {
                members.remove("$schema");
            }
            for key in ["$ref", "$dynamicRef"] {
                if members.get(key).is_some_and(Value::is_string)
                    && let Some(reference) = members.remove(key)
                    && let Value::Array(all) = members.entry("allOf").or_insert_with(|| json!([]))
                {
                    all.push(json!({ COUNTED: true }));
                    all.push(json!({ key: reference }));
                }
            }
        }
        _ => {}
    }
}

/// What is left of a check's references, and where its stack begins.
#[derive(Debug)]
struct Bounds {
    left: AtomicU32,
    base: usize,
}

impl Bounds {
    /// One more reference. Unwinds when it is one too many: the library has no other way to be stopped.
    fn step(&self) {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 || stack_pointer().abs_diff(self.base) > MAX_DEPTH_BYTES {
            resume_unwind(Box::new("beyond the bounds of a check"));
        }
        self.left.store(left - 1, Ordering::Relaxed);
    }
}

/// About where the stack stands.
#[inline(never)]
fn stack_pointer() -> usize {
    let here = 0u8;
    (&raw const here).addr()
}

struct Counted(Arc<Bounds>);

impl<'i> Keyword<'i> for Counted {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        self.0.step();
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        self.0.step();
        true
    }
}

type Made<'a> = Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>>;

fn counted_by(
    bounds: Arc<Bounds>,
) -> impl for<'a> Fn(&'a Map<String, Value>, &'a Value, Location) -> Made<'a> + Send + Sync + 'static {
    move |_, _, _| Ok(Box::new(Counted(bounds.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn verdict(schema: &Value, text: &str) -> bool {
        RequestSchema::new(schema.to_string().as_bytes()).is_none_or(|schema| schema.fits(text))
    }

    #[test]
    fn an_answer_fits_its_schema_or_does_not() {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "pattern": "^[a-z]+$" },
                "age": { "type": "integer", "minimum": 0 },
                "kind": { "enum": ["a", "b"] },
                "next": { "anyOf": [{ "$ref": "#" }, { "type": "null" }] },
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        for good in [
            r#"{"name":"x"}"#,
            r#" {"name":"x","age":3,"kind":"b","next":{"name":"y","next":null}} "#,
            r#"{"name":"x","age":3.0}"#,
        ] {
            assert!(verdict(&schema, good), "{good}");
        }
        for bad in [
            "[]",
            "{}",
            r#"{"name":"X"}"#,
            r#"{"name":"x","age":-1}"#,
            r#"{"name":"x","kind":"c"}"#,
            r#"{"name":"x","more":1}"#,
            r#"{"name":"x","next":{"age":1}}"#,
        ] {
            assert!(!verdict(&schema, bad), "{bad}");
        }
    }

    /// Counting must not change what references mean: siblings, pointers into definitions, anchors, other drafts' names.
    #[test]
    fn references_mean_what_they_mean() {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": { "id": { "type": "integer" }, "both": { "allOf": [{ "minimum": 1 }] } },
            "$defs": { "named": { "$anchor": "named", "properties": { "inner": { "$ref": "#/definitions/id" } } } },
            "properties": {
                "id": { "$ref": "#/definitions/id", "maximum": 5, "allOf": [{ "$ref": "#/definitions/both" }] },
                "deep": { "$ref": "#/$defs/named/properties/inner" },
                "named": { "$ref": "#named" },
                "$ref": { "type": "boolean" },
            },
            "unevaluatedProperties": false,
        });
        for (text, fits) in [
            (r#"{"id":3,"deep":4,"named":{"inner":1},"$ref":true}"#, true),
            (r#"{"id":9}"#, false),
            (r#"{"id":0}"#, false),
            (r#"{"id":"3"}"#, false),
            (r#"{"deep":"4"}"#, false),
            (r#"{"named":{"inner":"1"}}"#, false),
            (r#"{"$ref":1}"#, false),
            (r#"{"other":1}"#, false),
        ] {
            assert_eq!(verdict(&schema, text), fits, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_or_would_be_fetched_asks_for_nothing() {
        for schema in [
            json!(5),
            json!({ "type": "nonsense" }),
            json!({ "$ref": "#/nowhere" }),
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/hostname" }),
            json!({ "pattern": "(" }),
            json!({ "pattern": "(?=look)around" }),
            json!({ "pattern": "((a{1000}){1000}){1000}" }),
        ] {
            assert!(verdict(&schema, "[]"), "{schema}");
            assert!(verdict(&schema, r#""x""#), "{schema}");
        }
        assert!(RequestSchema::new(b"{").is_some_and(|schema| schema.fits("[]")));
        assert!(RequestSchema::new(&vec![b' '; MAX_SCHEMA_BYTES + 1]).is_none());
    }

    /// Definitions of which each refers to the next so, and the last asks for a text.
    fn chain(length: usize, refer: impl Fn(Value) -> Value) -> Value {
        let next = |at: usize| json!({ "$ref": format!("#/$defs/{at}") });
        let mut definitions: Map<String, Value> = (0..length).map(|at| (at.to_string(), refer(next(at + 1)))).collect();
        definitions.insert(length.to_string(), json!({ "type": "string" }));
        json!({ "$defs": definitions, "$ref": "#/$defs/0" })
    }

    #[test]
    fn no_schema_costs_more_than_its_bounds() {
        let begun = std::time::Instant::now();
        let doubling = chain(60, |next| json!({ "anyOf": [next, next] }));
        assert!(verdict(&doubling, "[]"), "two to the power of sixty ways: no verdict");
        assert!(verdict(&doubling, r#""x""#));
        let long = chain(1500, |next| json!({ "anyOf": [next] }));
        assert!(!verdict(&long, "[]") && verdict(&long, r#""x""#), "long is not too long");
        for endless in [json!({ "$ref": "#" }), json!({ "allOf": [{ "not": { "$ref": "#" } }] })] {
            verdict(&endless, "[]");
        }
        // Down through the answer and, at each of its levels, through all definitions.
        let mut deep = chain(1000, |next| json!({ "anyOf": [next] }));
        deep["$defs"]["1000"] = json!({ "items": { "$ref": "#" } });
        verdict(&deep, &("[".repeat(120) + &"]".repeat(120)));
        let wide = format!("[{}1]", "1,".repeat(1 << 20));
        assert!(
            verdict(&json!({ "items": { "type": "string" }, "title": "x".repeat(1000) }), &wide),
            "too much to compare"
        );
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
