//! From a call's body to its plan (X3).

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use super::body::{self, ModelSlot, Wish};
use super::models::Listing;
use super::render::Answer;
use super::route::Operation;
use super::text::shortened;
use super::{Gateway, Model};
use crate::policy::{Plan, Route};
use crate::wire::{Dialect, Format};

/// A call that can begin.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What it is to do.
    pub plan: Plan,
    /// Where its body says the model's name: each candidate wants its own there.
    pub slot: ModelSlot,
    /// Where its body says the schema that the answer must fit (G17).
    pub schema: Option<Range<usize>>,
}

impl Gateway {
    /// Reads a call's body and finds its route.
    ///
    /// # Errors
    /// The answer for the client, in the protocol's shape: 400 for a body that cannot be served or a model of another
    /// protocol, 404 for an unknown model, 415 for a compressed body, 503 where no models are known at all (M9).
    pub fn plan(
        &self,
        operation: Operation,
        content_type: Option<&str>,
        content_encoding: Option<&str>,
        body: &[u8],
        request_id: &str,
    ) -> Result<Planned, Answer> {
        let format = operation.format();
        let refuse = |status, message: &str| Answer::error(format.dialect(), status, message, None, request_id);
        if let Some(coding) = content_encoding.map(str::trim).filter(|coding| !is_plain(coding)) {
            let message = format!("the body is coded as `{}`; send it uncompressed", shortened(coding));
            return Err(refuse(415, &message).with("accept-encoding", "identity"));
        }
        let wish = body::read(format, content_type, body).map_err(|error| refuse(400, &format!("{error}")))?;
        let name = wish.slot.name();
        let model = self.models.get(name).ok_or_else(|| self.unknown_model(format.dialect(), name, request_id))?;
        match model.routes.iter().find(|(spoken, _)| *spoken == format) {
            Some((_, route)) => Ok(planned(route.clone(), format, wish)),
            None => Err(refuse(400, &not_spoken(name, model, format))),
        }
    }

    /// The answer for a name that no model has: 404, or 503 where it may well be one that is not known yet (M9): to say
    /// that it does not exist would make clients give up.
    pub(super) fn unknown_model(&self, dialect: Dialect, name: &str, request_id: &str) -> Answer {
        if self.models.is_empty() {
            let message = "no models are available: no provider's list could be fetched and none are configured; \
                           try again later, or give the providers their `models`";
            return Answer::error(dialect, 503, message, None, request_id);
        }
        let provider = name.split_once('/').and_then(|(provider, _)| self.config.provider(provider));
        let listing = provider.and_then(|(place, provider)| Some((self.listings.get(place)?, &provider.name)));
        let shown = shortened(name);
        let message = match listing {
            Some((Listing::Nothing, provider)) => {
                let message = format!(
                    "whether the model `{shown}` exists is not known: the list of provider {provider} could not be \
                     fetched so far; try again later, or give it its `models`"
                );
                return Answer::error(dialect, 503, &message, None, request_id);
            }
            Some((Listing::StandIn, provider)) => format!(
                "the model `{shown}` is not known: the list of provider {provider} could not be fetched so far; \
                 GET /v1/models lists what stands in for it"
            ),
            _ => format!("the model `{shown}` does not exist; GET /v1/models lists those that do"),
        };
        Answer::error(dialect, 404, &message, Some("model_not_found"), request_id)
    }
}

fn planned(route: Arc<Route>, format: Format, wish: Wish) -> Planned {
    let Wish { slot, stream, include_usage, structured, schema, tokens } = wish;
    // Only these answer with streams; `stream` elsewhere is a field that the upstream may have an opinion on.
    let streams = matches!(format, Format::Chat | Format::Responses | Format::Messages | Format::Images);
    let plan = Plan { route, format, stream: stream && streams, include_usage, structured, replay_safe: true, tokens };
    Planned { plan, slot, schema }
}

fn is_plain(coding: &str) -> bool {
    coding.is_empty() || coding.eq_ignore_ascii_case("identity")
}

/// The message for a model that cannot be had over this protocol: over which it can.
fn not_spoken(name: &str, model: &Model, format: Format) -> String {
    let known =
        Operation::ALL.into_iter().filter(|other| model.routes.iter().any(|(spoken, _)| *spoken == other.format()));
    let paths: Vec<&str> = known.map(Operation::path).collect();
    format!(
        "no provider of the model `{}` speaks {}; ask for it at {}",
        shortened(name),
        format.as_str(),
        paths.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::fixture;
    use proptest::prelude::*;

    fn plan(gateway: &Gateway, operation: Operation, body: &str) -> Result<Planned, (u16, String)> {
        let answer = gateway.plan(operation, Some("application/json"), None, body.as_bytes(), "r-1");
        answer.map_err(|answer| (answer.status, String::from_utf8(answer.body.to_vec()).unwrap()))
    }

    #[test]
    fn a_call_goes_to_the_candidates_that_speak_its_protocol() {
        let gateway = fixture::gateway(&fixture::tree());
        let sources = |operation, model: &str| -> Vec<String> {
            let planned = plan(&gateway, operation, &format!(r#"{{"model":"{model}","stream":true}}"#)).unwrap();
            let candidates = planned.plan.route.candidates.iter();
            candidates.map(|candidate| format!("{} {}", candidate.source_name, candidate.model)).collect()
        };
        let chat = ["u2/eu/a up-model", "u2/us/a up-model", "u1/a unlisted", "u1/b unlisted"];
        assert_eq!(sources(Operation::ChatCompletions, "m"), chat);
        assert_eq!(sources(Operation::Embeddings, "m"), chat[2..]);
        assert_eq!(sources(Operation::CountTokens, "m"), ["claude opus"]);
        assert_eq!(sources(Operation::ImageEdits, "u1/org/other:free"), ["u1/a org/other:free", "u1/b org/other:free"]);
    }

    #[test]
    fn what_is_asked_for_is_in_the_plan() {
        let gateway = fixture::gateway(&fixture::tree());
        let body = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_object"},"max_tokens":10}"#;
        let Planned { plan: chat, slot, .. } = plan(&gateway, Operation::ChatCompletions, body).unwrap();
        assert_eq!((chat.format, chat.stream, chat.include_usage, chat.structured), (Format::Chat, true, true, true));
        assert_eq!((chat.replay_safe, chat.tokens), (true, body.len() as u32 / 4 + 10));
        assert_eq!((slot.name(), &*chat.route.model), ("m", "m"));
        assert!(!plan(&gateway, Operation::Embeddings, body).unwrap().plan.stream);
    }

    #[test]
    fn what_cannot_begin_is_refused_in_the_protocols_shape() {
        let gateway = fixture::gateway(&fixture::tree());
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(300));
        let cases = [
            (Operation::ChatCompletions, ""),
            (Operation::Messages, r#""m""#),
            (Operation::Responses, r#"{"model":5}"#),
            (Operation::ChatCompletions, r#"{"model":"nope-1"}"#),
            (Operation::Messages, r#"{"model":"nope-1"}"#),
            (Operation::Embeddings, r#"{"model":"u1/nope-1"}"#),
            (Operation::ChatCompletions, r#"{"model":"nobody/up-model"}"#),
            (Operation::ChatCompletions, r#"{"model":"claude/opus"}"#),
            (Operation::Messages, r#"{"model":"flat"}"#),
            (Operation::Responses, &long),
        ];
        let told: Vec<String> = cases
            .iter()
            .map(|(operation, body)| {
                let (status, answer) = plan(&gateway, *operation, body).unwrap_err();
                format!("{operation:?} {status} {answer}")
            })
            .collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_compressed_body_is_refused_and_identity_is_none() {
        let gateway = fixture::gateway(&fixture::tree());
        let status = |coding| {
            let planned = gateway.plan(Operation::Responses, None, coding, br#"{"model":"flat"}"#, "r");
            planned.map_or_else(|answer| answer.status, |_| 200)
        };
        assert_eq!(
            [None, Some(""), Some("Identity"), Some("gzip"), Some("identity, br")].map(status),
            [200, 200, 200, 415, 415]
        );
    }

    #[test]
    fn with_no_models_at_all_every_call_is_503() {
        let tree = serde_json::json!({ "providers": [
            { "name": "u1", "formats": ["chat"], "base_url": "http://h/v1" },
            { "name": "u2", "formats": ["chat"], "base_url": "http://h/v1" },
        ] });
        let status = |tree: &serde_json::Value, model: &str| {
            plan(&fixture::gateway(tree), Operation::ChatCompletions, &format!(r#"{{"model":"{model}"}}"#))
                .unwrap_err()
                .0
        };
        assert_eq!((status(&tree, "u1/x"), status(&tree, "x")), (503, 503));
        let mut known = tree.clone();
        known["providers"][1]["models"] = serde_json::json!(["y"]);
        assert_eq!(["u1/x", "u2/x", "x"].map(|model| status(&known, model)), [503, 404, 404]);
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_never_panic(body: Vec<u8>, kind: Option<String>, coding: Option<String>, at in 0..Operation::ALL.len()) {
            let gateway = fixture::gateway(&fixture::tree());
            let planned = gateway.plan(Operation::ALL[at], kind.as_deref(), coding.as_deref(), &body, "r");
            prop_assert!(planned.is_err_and(|answer| (400..500).contains(&answer.status)));
        }
    }
}
