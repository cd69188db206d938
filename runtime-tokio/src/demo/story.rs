//! The story: what goes wrong at the providers, and when.

use std::time::Duration;

use crate::mock::{Behaviour, DirectiveError, Rule, Script};

/// The providers, in the order in which `smart` tries them.
pub(super) const SOURCES: [&str; 3] = ["u1", "u2", "u3"];

/// The model of calls that ask for JSON.
pub(super) const JSON_MODEL: &str = "json";
/// The other models at the providers.
const TEXT_MODELS: &str = "text-*";

/// What a model of the gateway's is called at the providers.
pub(super) fn upstream_model(model: &'static str) -> &'static str {
    match model {
        "smart" => "text-large",
        "fast" => "text-small",
        other => other,
    }
}

/// A part of the story.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) title: &'static str,
    /// What to look for in the lines that follow.
    pub(super) hint: &'static str,
    /// Its part of the whole.
    share: u32,
    troubles: &'static [Trouble],
}

/// Something that goes wrong at a provider. The first trouble that fits a request decides.
#[derive(Debug)]
struct Trouble {
    source: &'static str,
    on: On,
    /// Only every so many-th of these requests; 1 = each.
    every: u64,
    /// As a mock is told it.
    answer: &'static str,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum On {
    All,
    Streams,
    /// An empty Responses answer is delivered as it is, by the contract (M3): only elsewhere is it a failure.
    ChatStreams,
    Whole,
    Json,
}

const fn trouble(source: &'static str, on: On, every: u64, answer: &'static str) -> Trouble {
    Trouble { source, on, every, answer }
}

/// The whole story. Every trouble leaves another provider that is well: what the client still gets to see is what no
/// failover can undo.
pub(super) const SCENES: [Scene; 7] = [
    Scene { title: "all is well", hint: "smart goes to u1, fast is spread over all three", share: 7, troubles: &[] },
    Scene {
        title: "u1 is down: 503 to everybody",
        hint: "one retry there, then u2; soon the breaker opens and u1 is passed by, but for a probe now and then",
        share: 9,
        troubles: &[trouble("u1", On::All, 1, "503")],
    },
    Scene {
        title: "u1 says 200 and does not mean it",
        hint: "errors inside streams, empty answers, wrong types, HTML, talk in place of JSON",
        share: 10,
        troubles: &[
            trouble("u1", On::Json, 2, r#"text="Sure! Here is the JSON that you wanted.""#),
            trouble("u1", On::Streams, 4, "error=529"),
            trouble("u1", On::ChatStreams, 2, "empty"),
            trouble("u1", On::Whole, 4, "error"),
            trouble("u1", On::Whole, 3, "drift"),
            trouble("u1", On::Whole, 3, "html"),
        ],
    },
    Scene {
        title: "u1's answers break off, or never begin",
        hint: "before the first word nobody notices; after it the client is told, for its words cannot be taken back",
        share: 11,
        troubles: &[
            trouble("u1", On::Streams, 6, "cut-after=0c"),
            trouble("u1", On::Streams, 7, "stall-after=0"),
            trouble("u1", On::Streams, 6, "cut-at=1500"),
            trouble("u1", On::Streams, 6, "cut-after=5c"),
            trouble("u1", On::Streams, 8, "malformed-after=7c"),
            trouble("u1", On::Whole, 3, "cut-after=1"),
            trouble("u1", On::Whole, 4, "reset"),
            trouble("u1", On::Json, 3, "stall"),
        ],
    },
    Scene {
        title: "a storm of rate limits: 429 with retry-after",
        hint: "no failure, a schedule: others are asked first, and only if nobody can start now the call waits",
        share: 9,
        troubles: &[
            trouble("u1", On::All, 1, "429, retry-after-ms=1500"),
            trouble("u2", On::All, 3, "429, retry-after-ms=600"),
            trouble("u3", On::All, 3, "429, retry-after-ms=400"),
        ],
    },
    Scene {
        title: "u1's key is revoked: 401",
        hint: "not tried twice, and not again before its cooldown is over",
        share: 6,
        troubles: &[trouble("u1", On::All, 1, "401")],
    },
    Scene {
        title: "u1 is back",
        hint: "a probe finds it well, its breaker closes, and it gets its traffic back",
        share: 8,
        troubles: &[],
    },
];

/// The words of a good answer. They name who says them: a client can tell whether it got one provider's words, all of
/// them, each once.
pub(super) fn words(source: &str) -> String {
    format!("Hello from {source}: every word of this answer came once and in order, and none is missing.")
}

/// The scene's end, after the beginning of a story of this length.
pub(super) fn ends(scene: usize, whole: Duration) -> Duration {
    let all: u32 = SCENES.iter().map(|scene| scene.share).sum();
    let past: u32 = SCENES.iter().take(scene + 1).map(|scene| scene.share).sum();
    whole * past / all
}

impl Scene {
    /// What a provider does in this scene.
    pub(super) fn script(&self, source: &str) -> Result<Script, DirectiveError> {
        let words = words(source);
        let mut rules = Vec::new();
        for trouble in self.troubles.iter().filter(|trouble| trouble.source == source) {
            let answers = Behaviour::parse_sequence(trouble.answer)?;
            let answers = answers.into_iter().map(|answer| spoken(answer, &words)).collect();
            let path = (trouble.on == On::ChatStreams).then(|| "/chat/completions".to_owned());
            let (stream, model) = match trouble.on {
                On::All => (None, None),
                On::Streams | On::ChatStreams => (Some(true), Some(TEXT_MODELS.to_owned())),
                On::Whole => (Some(false), Some(TEXT_MODELS.to_owned())),
                On::Json => (None, Some(JSON_MODEL.to_owned())),
            };
            rules.push(Rule { path, stream, model, every: trouble.every, answers, ..Rule::default() });
        }
        // Without words of ours the mock answers with what the request's schema asks for.
        let json = Behaviour { delay_ms: DELAY_MS, ..Behaviour::default() };
        rules.push(Rule { model: Some(JSON_MODEL.to_owned()), answers: vec![json], ..Rule::default() });
        Ok(Script { rules, default: vec![spoken(Behaviour::default(), &words)], ..Script::default() })
    }
}

/// A model's pace, in ms: before the head, and between words.
const DELAY_MS: u64 = 20;
const GAP_MS: u64 = 12;

fn spoken(behaviour: Behaviour, words: &str) -> Behaviour {
    let text = behaviour.text.or_else(|| Some(words.to_owned()));
    Behaviour { text, delay_ms: DELAY_MS, gap_ms: GAP_MS, ..behaviour }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_has_a_script_for_every_source_and_a_place_in_the_whole() {
        let whole = Duration::from_secs(60);
        for (index, scene) in SCENES.iter().enumerate() {
            assert!(index == 0 || ends(index, whole) > ends(index - 1, whole), "{}", scene.title);
            for source in SOURCES {
                let script = scene.script(source).unwrap_or_else(|error| panic!("{}: {error}", scene.title));
                assert!(script.default[0].text.as_ref().unwrap().contains(source));
            }
            let known = |trouble: &Trouble| SOURCES.contains(&trouble.source) && trouble.every > 0;
            assert!(scene.troubles.iter().all(known), "{}", scene.title);
        }
        assert_eq!(ends(SCENES.len() - 1, whole), whole);
    }
}
