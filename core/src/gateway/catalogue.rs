//! The built-in catalogue: what well-known providers serve, for the time in which they cannot be asked (M9).
//!
//! A stand-in, not a claim: the provider's own list replaces it as soon as there is one.

/// Models by the host of a provider's default base URL.
const CATALOGUE: [(&str, &[&str]); 8] = [
    (
        "api.openai.com",
        &[
            "gpt-5.1",
            "gpt-5",
            "gpt-5-mini",
            "gpt-5-nano",
            "gpt-4.1",
            "gpt-4.1-mini",
            "gpt-4.1-nano",
            "gpt-4o",
            "gpt-4o-mini",
            "o3",
            "o4-mini",
            "text-embedding-3-large",
            "text-embedding-3-small",
            "gpt-image-1",
        ],
    ),
    (
        "api.anthropic.com",
        &[
            "claude-opus-4-5",
            "claude-opus-4-1",
            "claude-sonnet-4-5",
            "claude-sonnet-4-0",
            "claude-haiku-4-5",
            "claude-3-5-haiku-latest",
        ],
    ),
    (
        "generativelanguage.googleapis.com",
        &["gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-embedding-001"],
    ),
    ("api.deepseek.com", &["deepseek-chat", "deepseek-reasoner"]),
    ("api.groq.com", &["llama-3.3-70b-versatile", "llama-3.1-8b-instant", "openai/gpt-oss-120b", "openai/gpt-oss-20b"]),
    ("openrouter.ai", &["openrouter/auto"]),
    (
        "api.mistral.ai",
        &["mistral-large-latest", "mistral-medium-latest", "mistral-small-latest", "codestral-latest", "mistral-embed"],
    ),
    ("api.x.ai", &["grok-4", "grok-3", "grok-3-mini", "grok-code-fast-1"]),
];

/// The models of the provider at `host`; none for a host that is not a default one.
pub(super) fn models_at(host: &str) -> &'static [&'static str] {
    CATALOGUE.iter().find(|(known, _)| known.eq_ignore_ascii_case(host)).map_or(&[], |(_, models)| models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_hosts_have_models_and_others_have_none() {
        assert!(models_at("API.openai.com").contains(&"gpt-5"));
        assert!(CATALOGUE.iter().all(|(host, _)| !models_at(host).is_empty()));
        assert!(models_at("127.0.0.1").is_empty() && models_at("eu.api.openai.com").is_empty());
    }
}
