//! Reading a request: its route and what it asks for, as far as an answer depends on it.

use serde_json::{Map, Value, json};

/// The routes a provider has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Chat,
    Responses,
    Messages,
    CountTokens,
    Embeddings,
    /// Generations, edits, variations; true for edits, whose events have other names.
    Images(bool),
    Models,
    Model,
    Unknown,
}

/// What a request asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    pub(super) model: String,
    pub(super) stream: bool,
    /// Chat: a usage chunk at the end of a stream.
    pub(super) include_usage: bool,
    pub(super) n: usize,
    /// The tools on offer: name and schema of the arguments.
    pub(super) tools: Vec<(String, Value)>,
    /// The tool that must be called; empty = any.
    pub(super) must_call: Option<String>,
    /// JSON is asked for: the schema, `{}` where there is none.
    pub(super) schema: Option<Value>,
    /// What is to be embedded.
    pub(super) inputs: Vec<String>,
    pub(super) dimensions: usize,
    /// Embeddings as base64 (the default of OpenAI's SDKs).
    pub(super) base64: bool,
    /// Images as addresses.
    pub(super) urls: bool,
    pub(super) prompt_tokens: u64,
    /// The client's mistake, if there is one.
    pub(super) problem: Option<String>,
}

impl Route {
    /// By the path's end, so that any prefix may stand for an endpoint.
    pub(super) fn of(path: &str) -> Route {
        let path = path.trim_end_matches('/');
        let ends = |end: &str| path.ends_with(end);
        match path {
            _ if ends("/chat/completions") => Route::Chat,
            _ if ends("/responses") => Route::Responses,
            _ if ends("/messages") => Route::Messages,
            _ if ends("/messages/count_tokens") => Route::CountTokens,
            _ if ends("/embeddings") => Route::Embeddings,
            _ if ends("/images/edits") => Route::Images(true),
            _ if ends("/images/generations") || ends("/images/variations") => Route::Images(false),
            _ if ends("/models") => Route::Models,
            _ if path.contains("/models/") => Route::Model,
            _ => Route::Unknown,
        }
    }

    /// The method it takes; `None` = any.
    pub(super) fn method(self) -> Option<&'static str> {
        match self {
            Route::Models | Route::Model => Some("GET"),
            Route::Unknown => None,
            _ => Some("POST"),
        }
    }

    /// Whether its errors have Anthropic's shape.
    pub(super) fn anthropic(self) -> bool {
        matches!(self, Route::Messages | Route::CountTokens)
    }

    /// Whether it can answer with a stream.
    pub(super) fn streams(self) -> bool {
        matches!(self, Route::Chat | Route::Responses | Route::Messages | Route::Images(_))
    }
}

impl Ask {
    /// Reads the body of a request. Whatever is wrong with it becomes `problem`.
    pub(super) fn read(route: Route, path: &str, multipart: bool, body: &[u8]) -> Ask {
        match route {
            Route::Models | Route::Unknown => Ask::default(),
            Route::Model => {
                let name = path.split_once("/models/").map_or("", |(_, name)| name);
                Ask { model: name.to_owned(), ..Ask::default() }
            }
            _ if multipart => Ask::from_form(body),
            _ => match serde_json::from_slice::<Value>(body) {
                Ok(Value::Object(fields)) => Ask::from_json(route, &fields, body.len()),
                Ok(_) => Ask::mistaken("We could not parse the JSON body of your request: it is not an object."),
                Err(error) => Ask::mistaken(&format!("We could not parse the JSON body of your request: {error}.")),
            },
        }
    }

    fn mistaken(problem: &str) -> Ask {
        Ask { problem: Some(problem.to_owned()), ..Ask::default() }
    }

    fn from_json(route: Route, fields: &Map<String, Value>, length: usize) -> Ask {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        let flag = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or(false);
        let count = |name: &str| fields.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let mut ask = Ask {
            model: text("model").unwrap_or_default().to_owned(),
            stream: flag(fields.get("stream")) && route.streams(),
            include_usage: flag(fields.get("stream_options").and_then(|options| options.get("include_usage"))),
            n: count("n").unwrap_or(1).clamp(1, 128),
            tools: fields.get("tools").and_then(Value::as_array).map_or_else(Vec::new, |tools| offered(tools)),
            must_call: fields.get("tool_choice").and_then(must_call),
            schema: fields.get("response_format").or(fields.get("text").and_then(|t| t.get("format"))).and_then(schema),
            inputs: fields.get("input").map_or_else(Vec::new, inputs),
            dimensions: count("dimensions").unwrap_or(8).clamp(1, 4096),
            base64: text("encoding_format") == Some("base64"),
            urls: text("response_format") == Some("url"),
            // Four bytes a token is the usual rule of thumb.
            prompt_tokens: (length as u64 / 4).max(1),
            problem: None,
        };
        if ask.model.is_empty() && !matches!(route, Route::Images(_)) {
            ask.problem = Some("you must provide a model parameter".to_owned());
        } else if route == Route::Messages && count("max_tokens").is_none() {
            ask.problem = Some("max_tokens: Field required".to_owned());
        }
        ask
    }

    /// Fields of a form, as far as they matter here; files are skipped over.
    fn from_form(body: &[u8]) -> Ask {
        let text = String::from_utf8_lossy(body);
        let field = |name: &str| {
            let (_, rest) = text.split_once(&format!("name=\"{name}\"\r\n\r\n"))?;
            rest.split("\r\n").next()
        };
        Ask {
            model: field("model").unwrap_or_default().to_owned(),
            stream: field("stream") == Some("true"),
            n: field("n").and_then(|n| n.parse().ok()).unwrap_or(1).clamp(1, 128),
            urls: field("response_format") == Some("url"),
            prompt_tokens: (body.len() as u64 / 4).max(1),
            ..Ask::default()
        }
    }
}

/// Chat nests a tool under `function`; Responses and Messages do not, and the latter calls its schema `input_schema`.
fn offered(tools: &[Value]) -> Vec<(String, Value)> {
    let each = tools.iter().filter_map(|tool| {
        let tool = tool.get("function").unwrap_or(tool);
        let schema = tool.get("parameters").or(tool.get("input_schema")).cloned().unwrap_or(Value::Null);
        Some((tool.get("name")?.as_str()?.to_owned(), schema))
    });
    each.collect()
}

fn must_call(choice: &Value) -> Option<String> {
    let kind = choice.as_str().or(choice.get("type").and_then(Value::as_str))?;
    let name = choice.get("name").or(choice.get("function").and_then(|function| function.get("name")));
    match kind {
        "required" | "any" | "function" | "tool" => Some(name.and_then(Value::as_str).unwrap_or_default().to_owned()),
        _ => None,
    }
}

fn schema(format: &Value) -> Option<Value> {
    match format.get("type")?.as_str()? {
        "json_object" => Some(json!({})),
        "json_schema" => {
            let nested = format.get("json_schema").and_then(|inner| inner.get("schema"));
            Some(nested.or(format.get("schema")).cloned().unwrap_or_else(|| json!({})))
        }
        _ => None,
    }
}

fn inputs(input: &Value) -> Vec<String> {
    match input {
        Value::String(text) => vec![text.clone()],
        // A list of numbers is one text, given as tokens.
        Value::Array(items) if items.first().is_some_and(Value::is_number) => vec![input.to_string()],
        Value::Array(items) => {
            items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

/// The smallest value that fits a JSON schema, near enough: for structured answers and for the arguments of tools.
pub(super) fn instance(schema: &Value, depth: usize) -> Value {
    if let Some(value) = schema.get("const").or(schema.get("default")) {
        return value.clone();
    }
    if let Some(value) = schema.get("enum").and_then(|values| values.get(0)) {
        return value.clone();
    }
    if let Some(first) = schema.get("anyOf").or(schema.get("oneOf")).and_then(|options| options.get(0)) {
        return if depth == 0 { Value::Null } else { instance(first, depth - 1) };
    }
    let kind = schema.get("type").map(|kind| kind.as_str().or(kind.get(0).and_then(Value::as_str)).unwrap_or_default());
    match kind {
        Some("string") => json!("mock"),
        Some("integer") => schema.get("minimum").cloned().unwrap_or_else(|| json!(1)),
        Some("number") => schema.get("minimum").cloned().unwrap_or_else(|| json!(1.5)),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("array") => json!([]),
        _ => {
            let properties = schema.get("properties").and_then(Value::as_object).filter(|_| depth > 0);
            let each = properties.into_iter().flatten();
            Value::Object(each.map(|(name, inner)| (name.clone(), instance(inner, depth - 1))).collect())
        }
    }
}
