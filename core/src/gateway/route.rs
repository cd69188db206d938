//! From a request's head to what is to be done with it: a call, a pass-through, or an answer of our own (X3, M7).

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use super::render::Answer;
use super::text::{percent_decoded, shortened};
use super::upstream::Tail;
use super::{Gateway, models_page};
use crate::policy::Plan;
use crate::wire::{Dialect, Format};

/// A request's head, as far as routing reads it.
#[derive(Copy, Clone)]
pub struct RequestHead<'a> {
    /// Its method, in upper case.
    pub method: &'a str,
    /// Its path, as sent.
    pub path: &'a str,
    /// Its query without the `?`, as sent.
    pub query: Option<&'a str>,
    /// The first value of a header, by its lower-case name.
    pub header: &'a dyn Fn(&str) -> Option<&'a str>,
    /// The id that its answer carries; see [`request_id`](super::headers::request_id).
    pub request_id: &'a str,
}

/// What is to be done with a request.
#[derive(Debug)]
pub enum Routed {
    /// This is its answer; its body need not be read.
    Local(Answer),
    /// A model is to answer: read the body, then [`Gateway::plan`].
    Call {
        /// Which route.
        operation: Operation,
        /// What stands behind the base URL of each source.
        tail: Tail,
    },
    /// It goes to a provider as it is (M7).
    Pass {
        /// Where to.
        plan: Plan,
        /// What stands behind the base URL of each source.
        tail: Tail,
    },
}

/// A route that a model answers.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "their paths tell: see Operation::path")]
pub enum Operation {
    ChatCompletions,
    Responses,
    Embeddings,
    ImageGenerations,
    ImageEdits,
    ImageVariations,
    Messages,
    CountTokens,
}

impl Operation {
    /// Every route.
    pub const ALL: [Operation; 8] = [
        Operation::ChatCompletions,
        Operation::Responses,
        Operation::Embeddings,
        Operation::ImageGenerations,
        Operation::ImageEdits,
        Operation::ImageVariations,
        Operation::Messages,
        Operation::CountTokens,
    ];

    /// Its path at the gateway.
    pub const fn path(self) -> &'static str {
        match self {
            Operation::ChatCompletions => "/v1/chat/completions",
            Operation::Responses => "/v1/responses",
            Operation::Embeddings => "/v1/embeddings",
            Operation::ImageGenerations => "/v1/images/generations",
            Operation::ImageEdits => "/v1/images/edits",
            Operation::ImageVariations => "/v1/images/variations",
            Operation::Messages => "/v1/messages",
            Operation::CountTokens => "/v1/messages/count_tokens",
        }
    }

    /// Its path behind a base URL's version part.
    pub fn tail(self) -> &'static str {
        self.path().strip_prefix("/v1").unwrap_or_default()
    }

    /// What is spoken on it.
    pub const fn format(self) -> Format {
        match self {
            Operation::ChatCompletions => Format::Chat,
            Operation::Responses => Format::Responses,
            Operation::Embeddings => Format::Embeddings,
            Operation::ImageGenerations | Operation::ImageEdits | Operation::ImageVariations => Format::Images,
            Operation::Messages => Format::Messages,
            Operation::CountTokens => Format::CountTokens,
        }
    }
}

impl RequestHead<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        (self.header)(name)
    }

    fn is_anthropic(&self) -> bool {
        self.header("anthropic-version").is_some()
    }

    /// The error shape of its path: what the SDK behind it can read.
    pub fn dialect(&self) -> Dialect {
        let messages =
            self.path.strip_prefix("/v1/messages").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let shared = self.path.starts_with("/v1/models") || self.path.starts_with("/p/");
        if messages || shared && self.is_anthropic() { Dialect::Anthropic } else { Dialect::OpenAi }
    }

    fn error(&self, status: u16, message: &str, code: Option<&str>) -> Answer {
        Answer::error(self.dialect(), status, message, code, self.request_id)
    }

    /// 405, unless the method is one of `allowed`.
    fn refuse_other_than(&self, allowed: &[&str]) -> Result<(), Answer> {
        if allowed.contains(&self.method) {
            return Ok(());
        }
        let allow = allowed.join(", ");
        let message = format!("{} is not allowed here; use {allow}", shortened(self.method));
        Err(self.error(405, &message, None).with("allow", allow))
    }
}

impl Gateway {
    /// Decides what is to be done with a request, from its head alone.
    ///
    /// Health is open to all; everything else wants a client's key where there are any, unknown routes too.
    pub fn route(&self, head: &RequestHead<'_>) -> Routed {
        self.try_route(head).unwrap_or_else(Routed::Local)
    }

    fn try_route(&self, head: &RequestHead<'_>) -> Result<Routed, Answer> {
        const READ: [&str; 2] = ["GET", "HEAD"];
        if matches!(head.path, "/health" | "/health/ready") {
            head.refuse_other_than(&READ)?;
            let body = if head.path == "/health" { r#"{"status":"ok"}"# } else { self.readiness() };
            return Ok(Routed::Local(Answer::json(200, body, head.request_id)));
        }
        if !self.keys.admit(head.header("authorization"), head.header("x-api-key")) {
            let message = "the API key is missing or not one of this gateway's; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`";
            return Err(head.error(401, message, Some("invalid_api_key")).with("www-authenticate", "Bearer"));
        }
        if let Some(operation) = Operation::ALL.into_iter().find(|operation| operation.path() == head.path) {
            head.refuse_other_than(&["POST"])?;
            let tail = head.tail(operation.format(), operation.tail().into());
            return Ok(Routed::Call { operation, tail });
        }
        if let Some(rest) = head.path.strip_prefix("/p/") {
            return self.pass(head, rest);
        }
        match head.path.strip_prefix("/v1/models") {
            Some("" | "/") => {
                head.refuse_other_than(&READ)?;
                Ok(Routed::Local(Answer::json(200, self.listing.clone(), head.request_id)))
            }
            Some(rest) if rest.starts_with('/') => {
                head.refuse_other_than(&READ)?;
                self.model_card(head, rest.get(1..).unwrap_or_default())
            }
            _ => Err(head.error(404, &unknown_route(head), None)),
        }
    }

    fn model_card(&self, head: &RequestHead<'_>, id: &str) -> Result<Routed, Answer> {
        let id = percent_decoded(id);
        match self.models.get(&*id) {
            Some(model) => Ok(Routed::Local(Answer::json(200, models_page::card(&id, &model.owner), head.request_id))),
            None => Err(self.unknown_model(head.dialect(), &id, head.request_id)),
        }
    }

    /// `/p/PROVIDER/…` (M7): any method, retried only where a second execution does no harm.
    fn pass(&self, head: &RequestHead<'_>, rest: &str) -> Result<Routed, Answer> {
        let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let route = self.passes.iter().find(|(known, _)| **known == *name).map(|(_, route)| route);
        let Some(route) = route else {
            let message = format!("no provider is called `{}`", shortened(name));
            return Err(head.error(404, &message, None));
        };
        // They would lead out of the base URL's path, with the provider's key.
        if path.split('/').any(|segment| matches!(&*percent_decoded(segment), "." | "..")) {
            return Err(head.error(400, "the path must not contain `.` or `..` segments", None));
        }
        let replay_safe = matches!(head.method, "GET" | "HEAD" | "OPTIONS" | "PUT")
            || head.header("idempotency-key").is_some_and(|key| !key.trim().is_empty());
        let plan = Plan {
            route: route.clone(),
            format: Format::Raw,
            stream: false,
            include_usage: false,
            structured: false,
            replay_safe,
            tokens: 0,
        };
        Ok(Routed::Pass { plan, tail: head.tail(Format::Raw, Cow::Owned(path.into())) })
    }
}

impl RequestHead<'_> {
    fn tail(&self, format: Format, path: Cow<'static, str>) -> Tail {
        Tail { format, path, query: self.query.map(Into::into), anthropic: self.is_anthropic() }
    }
}

/// The message for an unknown route; the usual mistakes with an SDK's base URL are told as such.
fn unknown_route(head: &RequestHead<'_>) -> String {
    let shown = format!("no route {} {}", shortened(head.method), shortened(head.path));
    let is_route = |path: &str| path == "/v1/models" || Operation::ALL.iter().any(|operation| operation.path() == path);
    let without = head.path.strip_prefix("/v1").unwrap_or_default();
    if is_route(&format!("/v1{}", head.path)) {
        return format!("{shown}; OpenAI SDKs take a base URL with /v1 at its end");
    }
    if is_route(without) {
        return format!("{shown}; Anthropic SDKs take a base URL without /v1 at its end");
    }
    let below = |path: &str| head.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/') && rest != "/");
    if Operation::ALL.iter().any(|operation| below(operation.path())) {
        return format!("{shown}; what has no failover is at /p/PROVIDER/…");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::fixture;

    fn route(gateway: &Gateway, method: &str, path: &str, headers: &[(&str, &str)]) -> Routed {
        let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        gateway.route(&RequestHead { method, path, query: Some("q=1"), header: &header, request_id: "r-1" })
    }

    fn shown(routed: &Routed) -> String {
        match routed {
            Routed::Local(answer) => {
                let extra = answer.headers.iter().filter(|(name, _)| !name.starts_with("x-"));
                let extra: String = extra.map(|(name, value)| format!("[{name}: {value}] ")).collect();
                format!("{} {extra}{}", answer.status, core::str::from_utf8(&answer.body).unwrap())
            }
            Routed::Call { operation, tail } => {
                format!("call {operation:?} {} ?{}", tail.path, tail.query.as_ref().unwrap())
            }
            Routed::Pass { plan, tail } => {
                format!(
                    "pass {} {:?} ?{} replay_safe={}",
                    plan.route.model,
                    tail.path,
                    tail.query.as_ref().unwrap(),
                    plan.replay_safe
                )
            }
        }
    }

    #[test]
    fn the_table_of_routes() {
        let mut tree = fixture::tree();
        tree["models"] = serde_json::json!([]);
        let gateway = fixture::gateway(&tree);
        let mut asked: Vec<(&str, &str)> = Operation::ALL.iter().map(|operation| ("POST", operation.path())).collect();
        asked.extend([
            ("GET", "/v1/chat/completions"),
            ("DELETE", "/v1/messages"),
            ("PUT", "/v1/responses"),
            ("OPTIONS", "/v1/messages"),
            ("GET", "/health"),
            ("HEAD", "/health/ready"),
            ("POST", "/health"),
            ("GET", "/v1/models"),
            ("GET", "/v1/models/"),
            ("POST", "/v1/models"),
            ("GET", "/v1/models/u1/up-model"),
            ("GET", "/v1/models/u1%2Forg%2Fother%3Afree"),
            ("GET", "/v1/models/nope"),
            ("DELETE", "/v1/models/nope"),
            ("POST", "/"),
            ("POST", "/v1/chat/completion"),
            ("POST", "/v1/messages/nothing"),
            ("GET", "/metrics"),
            ("GET", "/v1/modelsx"),
            ("POST", "/chat/completions"),
            ("POST", "/v1/v1/messages"),
            ("GET", "/v1/responses/resp_1"),
            ("POST", "/v1/chat/completions/"),
            ("GET", "/p/u1/files/x%20y"),
            ("POST", "/p/u1/files"),
            ("PUT", "/p/claude/v1/x"),
            ("DELETE", "/p/u1"),
            ("GET", "/p/u1/"),
            ("GET", "/p/nobody/files"),
            ("GET", "/p/"),
            ("GET", "/p"),
            ("GET", "/p/u1/../x"),
            ("GET", "/p/u1/a/%2E%2e/x"),
            ("GET", "/p/u1/a/..b"),
        ]);
        let table: Vec<String> = asked
            .into_iter()
            .map(|(method, path)| format!("{method} {path}\n    {}", shown(&route(&gateway, method, path, &[]))))
            .collect();
        insta::assert_snapshot!(table.join("\n"));
    }

    #[test]
    fn an_idempotency_key_makes_a_pass_through_replay_safe() {
        let gateway = fixture::gateway(&fixture::tree());
        let safe = |method, headers: &[(&str, &str)]| match route(&gateway, method, "/p/u1/x", headers) {
            Routed::Pass { plan, .. } => plan.replay_safe,
            other => panic!("{other:?}"),
        };
        assert!(["GET", "HEAD", "OPTIONS", "PUT"].iter().all(|method| safe(method, &[])));
        assert!(["POST", "PATCH", "DELETE", "REPORT"].iter().all(|method| !safe(method, &[])));
        assert!(safe("POST", &[("idempotency-key", "abc")]) && !safe("POST", &[("idempotency-key", " ")]));
    }

    #[test]
    fn without_a_key_everything_but_health_is_closed_in_the_paths_own_shape() {
        let mut tree = fixture::tree();
        tree["server"] = serde_json::json!({ "api_keys": ["client-secret"] });
        let gateway = fixture::gateway(&tree);
        let paths = [
            "/health",
            "/health/ready",
            "/v1/models",
            "/v1/chat/completions",
            "/v1/messages",
            "/p/u1/files",
            "/nothing",
        ];
        let mut closed = Vec::new();
        for path in paths {
            let answer = shown(&route(&gateway, "GET", path, &[("authorization", "Bearer wrong-key")]));
            assert!(!answer.contains("wrong-key") && !answer.contains("client-secret"));
            closed.push(format!("{path}: {answer}"));
            let opened = shown(&route(&gateway, "GET", path, &[("x-api-key", "client-secret")]));
            assert!(!opened.starts_with("401"), "{path}: {opened}");
        }
        insta::assert_snapshot!(closed.join("\n"));
    }

    #[test]
    fn errors_have_the_shape_that_the_sdk_behind_the_path_reads() {
        let dialect = |path, anthropic| {
            let header = |name: &str| (anthropic && name == "anthropic-version").then_some("2023-06-01");
            RequestHead { method: "GET", path, query: None, header: &header, request_id: "r" }.dialect()
        };
        let anthropic =
            [("/v1/messages", false), ("/v1/messages/x", false), ("/v1/models", true), ("/p/claude/x", true)];
        let openai = [
            ("/v1/messagesx", false),
            ("/v1/chat/completions", true),
            ("/v1/models/m", false),
            ("/p/claude/x", false),
            ("/", true),
        ];
        assert!(anthropic.into_iter().all(|(path, sent)| dialect(path, sent) == Dialect::Anthropic));
        assert!(openai.into_iter().all(|(path, sent)| dialect(path, sent) == Dialect::OpenAi));
    }

    proptest::proptest! {
        #[test]
        fn any_head_gets_an_answer(method: String, path in "(/v1|/p/u1|/p|/health)?(/models)?/?.*") {
            let routed = route(&fixture::gateway(&fixture::tree()), &method, &path, &[]);
            proptest::prop_assert!(!shown(&routed).is_empty());
        }
    }
}
