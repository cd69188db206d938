//! Cutting a scenario down: what is left out of it, told in a few words that a command line can repeat.

use std::collections::BTreeSet;
use std::fmt;

use surefoot_core::time::Span;

use super::Scenario;
use crate::world::script::Chunking;
use crate::world::speech::Style;

/// What is left of a drawn scenario. Each concern has a stream of its own, so what stays runs as it ran before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// These clients alone come; `None` = all.
    pub clients: Option<BTreeSet<u32>>,
    /// These episodes alone happen; `None` = all.
    pub episodes: Option<BTreeSet<usize>>,
    /// These sources have their daily troubles; `None` = all.
    pub daily: Option<BTreeSet<usize>>,
    /// No configuration comes later.
    pub no_reload: bool,
    /// It does not get well at the end.
    pub no_heal: bool,
    /// The usual style of events, one chunk each.
    pub plain: bool,
    /// There is no store: one gateway, whose pool answers at once.
    pub no_store: bool,
    /// No client leaves or dawdles.
    pub patient: bool,
}

impl Cut {
    /// What is left of a scenario.
    #[must_use]
    pub fn apply(&self, mut scenario: Scenario) -> Scenario {
        if let Some(clients) = &self.clients {
            scenario.absent = (0..scenario.arrivals.len() as u32).filter(|client| !clients.contains(client)).collect();
        }
        if let Some(kept) = &self.episodes {
            let mut at = 0..;
            scenario.episodes.retain(|_| at.next().is_some_and(|at| kept.contains(&at)));
        }
        if let Some(kept) = &self.daily {
            let others = scenario.sites.iter_mut().enumerate().filter(|(at, _)| !kept.contains(at));
            others.for_each(|(_, site)| site.daily.clear());
        }
        if self.no_reload {
            scenario.reloads.clear();
        }
        if self.no_heal {
            let healed = scenario.heal.take().map(|heal| heal.at);
            let late =
                scenario.arrivals.iter().enumerate().filter(|(_, (at, _))| healed.is_some_and(|healed| *at > healed));
            scenario.absent.extend(late.map(|(client, _)| client as u32));
        }
        if self.plain {
            scenario.chunking = Chunking::Pieces;
            scenario.sites.iter_mut().for_each(|site| site.style = Style::PLAIN);
        }
        if self.no_store {
            scenario.store_latency = Span::ZERO;
            scenario.sharing = None;
        }
        if self.patient {
            for (_, client) in &mut scenario.arrivals {
                client.leaves = None;
                client.dawdles = Span::ZERO;
            }
        }
        scenario
    }

    /// Reads what [`Cut`] prints.
    ///
    /// # Errors
    /// The word that is none of a cut.
    pub fn parse(words: &str) -> Result<Cut, String> {
        let mut cut = Cut::default();
        for word in words.split_whitespace() {
            let (key, list) = word.split_once('=').unwrap_or((word, ""));
            let numbers = || -> Result<BTreeSet<u32>, String> {
                let numbers = list.split(',').filter(|number| !number.is_empty());
                numbers
                    .map(|number| number.parse().map_err(|_| format!("`{number}` in `{word}` is no number")))
                    .collect()
            };
            match key {
                "clients" => cut.clients = Some(numbers()?),
                "episodes" => cut.episodes = Some(numbers()?.into_iter().map(|at| at as usize).collect()),
                "daily" => cut.daily = Some(numbers()?.into_iter().map(|at| at as usize).collect()),
                "no-reload" => cut.no_reload = true,
                "no-heal" => cut.no_heal = true,
                "plain" => cut.plain = true,
                "no-store" => cut.no_store = true,
                "patient" => cut.patient = true,
                _ => return Err(format!("`{word}` is no part of a cut; take the words as a failed run printed them")),
            }
        }
        Ok(cut)
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |all: Vec<String>| all.join(",");
        let mut words = Vec::new();
        if let Some(clients) = &self.clients {
            words.push(format!("clients={}", list(clients.iter().map(u32::to_string).collect())));
        }
        if let Some(episodes) = &self.episodes {
            words.push(format!("episodes={}", list(episodes.iter().map(usize::to_string).collect())));
        }
        if let Some(daily) = &self.daily {
            words.push(format!("daily={}", list(daily.iter().map(usize::to_string).collect())));
        }
        let flags = [
            (self.no_reload, "no-reload"),
            (self.no_heal, "no-heal"),
            (self.plain, "plain"),
            (self.no_store, "no-store"),
            (self.patient, "patient"),
        ];
        words.extend(flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()));
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_prints_what_it_reads() {
        let words = "clients=3,17 episodes= daily=1 no-reload no-heal plain no-store patient";
        let cut = Cut::parse(words);
        assert_eq!(cut.as_ref().map(ToString::to_string), Ok(words.to_owned()));
        assert!(Cut::parse("clients=x").is_err() && Cut::parse("heal").is_err());
        assert_eq!(Cut::default().to_string(), "");
    }
}
