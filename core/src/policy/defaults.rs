//! What stands where a configuration says nothing: the built-in policy, the well-known providers of a start without a
//! file, and the models that they are known to have (M9).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::config::{BaseUrl, Config, Policy, Problem, read};
use super::{EmptyCompletion, Retry, Rules, Timeouts, Window};
use crate::time::Span;

/// A provider that an environment variable is enough for.
struct WellKnown {
    variable: &'static str,
    name: &'static str,
    base_url: &'static str,
    formats: &'static [&'static str],
    models: &'static [&'static str],
}

/// In the order of the interface page.
const WELL_KNOWN: [WellKnown; 8] = [
    WellKnown {
        variable: "OPENAI_API_KEY",
        name: "openai",
        base_url: "https://api.openai.com/v1",
        formats: &["chat", "responses", "embeddings", "images"],
        models: &["gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-4.1", "gpt-4o", "text-embedding-3-small", "gpt-image-1"],
    },
    WellKnown {
        variable: "ANTHROPIC_API_KEY",
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        formats: &["messages"],
        models: &["claude-opus-4-1", "claude-sonnet-4-5", "claude-haiku-4-5"],
    },
    WellKnown {
        variable: "GEMINI_API_KEY",
        name: "gemini",
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        formats: &["chat", "embeddings", "images"],
        models: &["gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-embedding-001"],
    },
    WellKnown {
        variable: "DEEPSEEK_API_KEY",
        name: "deepseek",
        base_url: "https://api.deepseek.com/v1",
        formats: &["chat"],
        models: &["deepseek-chat", "deepseek-reasoner"],
    },
    WellKnown {
        variable: "GROQ_API_KEY",
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        formats: &["chat", "responses"],
        models: &["llama-3.3-70b-versatile", "llama-3.1-8b-instant", "openai/gpt-oss-120b"],
    },
    WellKnown {
        variable: "OPENROUTER_API_KEY",
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        formats: &["chat", "responses", "embeddings"],
        models: &["openrouter/auto", "openai/gpt-5", "anthropic/claude-sonnet-4.5", "google/gemini-2.5-pro"],
    },
    WellKnown {
        variable: "MISTRAL_API_KEY",
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        formats: &["chat", "embeddings"],
        models: &["mistral-large-latest", "mistral-medium-latest", "mistral-small-latest", "mistral-embed"],
    },
    WellKnown {
        variable: "XAI_API_KEY",
        name: "xai",
        base_url: "https://api.x.ai/v1",
        formats: &["chat", "responses", "images"],
        models: &["grok-4", "grok-3", "grok-3-mini", "grok-2-image"],
    },
];

/// A configuration from well-known environment keys alone: every default, and a provider for each key that is set.
///
/// # Errors
/// None of the keys is set (the reason says which there are), or one cannot be a key (its path is the variable's name).
pub fn from_environment(env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Vec<Problem>> {
    let is_set = |known: &&WellKnown| env(known.variable).is_some_and(|key| !key.trim().is_empty());
    let found: Vec<&WellKnown> = WELL_KNOWN.iter().filter(is_set).collect();
    if found.is_empty() {
        let names: Vec<&str> = WELL_KNOWN.iter().map(|known| known.variable).collect();
        let reason = format!(
            "no configuration file and no provider key: write a surefoot.toml, or set one of {}",
            names.join(", ")
        );
        return Err([Problem { path: String::new(), reason }].into());
    }
    let providers: Vec<Value> = found
        .iter()
        .map(|known| {
            let key = json!({ "name": "key1", "value": format!("${{{}}}", known.variable) });
            json!({ "name": known.name, "formats": known.formats, "base_url": known.base_url, "keys": [key] })
        })
        .collect();
    // Only a key can be wrong in this tree; its path is the variable, for there is no file to look into.
    read(&json!({ "providers": providers }), env).map_err(|mut problems| {
        for problem in &mut problems {
            let place = found.iter().enumerate().find(|(at, _)| problem.path.starts_with(&format!("providers[{at}].")));
            if let Some((_, known)) = place {
                problem.path = known.variable.into();
            }
        }
        problems
    })
}

/// The models that a well-known address is known to have; empty for any other (M9 (3)).
///
/// A last resort while a list cannot be fetched: a few names a provider, not an inventory.
pub fn catalogue(base_url: &BaseUrl) -> &'static [&'static str] {
    let same = |known: &&WellKnown| {
        BaseUrl::parse(known.base_url).is_ok_and(|known| {
            known.is_https() == base_url.is_https()
                && known.host().eq_ignore_ascii_case(base_url.host())
                && known.port() == base_url.port()
                && (known.path() == base_url.path() || base_url.path().is_empty())
        })
    };
    WELL_KNOWN.iter().find(same).map_or(&[], |known| known.models)
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            sticky_key_attempts: 2,
            max_transfer_count: 0,
            max_transfer_timeout: Span::ZERO,
            max_attempts: 3,
            max_attempts_hard: 64,
            max_wait: Span::from_secs(30),
            deadline: Span::ZERO,
            empty_completion: EmptyCompletion::Failover,
            structured_max_retries: 2,
            rules: Rules::default(),
        }
    }
}

impl Default for Retry {
    fn default() -> Retry {
        Retry {
            initial: Span::from_millis(500),
            max: Span::from_secs(30),
            factor_milli: 2000,
            jitter_ppm: 100_000,
            stream: true,
        }
    }
}

impl Default for Window {
    fn default() -> Window {
        Window { max_bytes: 262_144, max_events: 4096 }
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Span::from_secs(10),
            first_byte: Span::from_secs(120),
            first_content: Span::ZERO,
            idle: Span::from_secs(300),
            total: Span::from_secs(600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Format;

    #[test]
    fn a_key_in_the_environment_is_enough_for_a_provider() {
        let env = |name: &str| match name {
            "ANTHROPIC_API_KEY" => Some(" sk-ant\n".to_owned()),
            "XAI_API_KEY" => Some("xai".to_owned()),
            "OPENAI_API_KEY" => Some("  ".to_owned()),
            _ => None,
        };
        let config = from_environment(&env).unwrap();
        let names: Vec<&str> = config.providers.iter().map(|provider| &*provider.name).collect();
        assert_eq!(names, ["anthropic", "xai"], "an empty variable is none");
        assert_eq!(config.providers[0].keys[0].value.expose(), "sk-ant");
        assert!(config.providers[0].speaks(Format::Messages) && config.providers[1].speaks(Format::Chat));
        assert_eq!(config.server.listen.to_string(), "127.0.0.1:4000");
        assert!(config.models.is_empty());
    }

    #[test]
    fn every_well_known_provider_is_a_valid_one() {
        let config = from_environment(&|_| Some("key".to_owned())).unwrap();
        assert_eq!(config.providers.len(), WELL_KNOWN.len());
        for provider in &config.providers {
            assert!(catalogue(&provider.endpoints[0].base_url).len() >= 2, "{}", provider.name);
        }
    }

    #[test]
    fn without_any_key_the_variables_are_named() {
        let told = from_environment(&|_| None).unwrap_err()[0].to_string();
        assert!(
            WELL_KNOWN.iter().all(|known| told.contains(known.variable)) && told.contains("surefoot.toml"),
            "{told}"
        );
    }

    #[test]
    fn a_key_that_no_header_can_carry_is_told_by_its_variable() {
        let env = |name: &str| (name == "GROQ_API_KEY").then(|| "two words".to_owned());
        let problems = from_environment(&env).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "GROQ_API_KEY");
        assert!(!problems[0].reason.contains("words"));
    }

    /// M9 (3): only the default addresses have a catalogue.
    #[test]
    fn the_catalogue_is_for_default_addresses_only() {
        let models = |text| catalogue(&BaseUrl::parse(text).unwrap());
        assert!(models("https://api.openai.com/v1/").contains(&"gpt-5"));
        assert!(!models("https://API.anthropic.com").is_empty(), "as Anthropic's own SDK writes it");
        for other in [
            "http://api.openai.com/v1",
            "https://api.openai.com:8443/v1",
            "https://api.openai.com/v2",
            "http://localhost/v1",
        ] {
            assert!(models(other).is_empty(), "{other}");
        }
    }
}
