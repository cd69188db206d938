//! A hostile scenario out of a seed. Swarm testing: each run has some faults and lacks others, for a fault that is always
//! there hides what only its absence would show.

use surefoot_core::event::CancelCause;
use surefoot_core::gateway::Operation;
use surefoot_core::time::{Span, Time};
use surefoot_core::wire::Format;

use super::knobs::{Knobs, Limits};
use super::{Heal, Scenario};
use crate::rng::{Concern, Stream};
use crate::world::client::Client;
use crate::world::episode::{Address, Episode, Scope, Shape};
use crate::world::script::Chunking;
use crate::world::shared::Sharing;
use crate::world::site::{Account, Site};
use crate::world::speech::{Ask, Style};
use crate::world::trouble::{self, Trouble};

/// A provider of a run.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) name: String,
    pub(super) formats: Vec<Format>,
    pub(super) endpoints: Vec<String>,
    pub(super) keys: Vec<Key>,
}

/// One of its keys.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) account: Option<String>,
}

/// A name that clients may ask for.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) model: String,
    pub(super) strategy: Option<&'static str>,
    pub(super) tiers: Vec<Vec<usize>>,
}

impl Offer {
    fn speaks(&self, providers: &[Provider], format: Format) -> bool {
        let wanted = if format == Format::CountTokens { Format::Messages } else { format };
        self.tiers.iter().flatten().any(|provider| providers[*provider].formats.contains(&wanted))
    }
}

/// The scenario of a seed.
pub fn draw(seed: u64) -> Scenario {
    let mut options = Stream::new(seed, Concern::Options, 0, 0);
    let lone = options.chance(80_000);
    let providers = providers(seed, lone);
    let offers = offers(seed, &providers, lone);
    let knobs = Knobs::draw(seed, 0, lone);
    let limits: Vec<Limits> =
        providers.iter().enumerate().map(|(at, _)| Limits::draw(seed, at as u64, 0, lone)).collect();
    let tree = knobs.tree(&providers, &offers, &limits);
    let (sites, accounts) = sites(seed, &providers, lone);

    let count = options.range(30, 400);
    let spacing = Span::from_millis(options.pick(&[2, 20, 20, 100, 400, 2000]));
    let horizon = Time(count * spacing.0 + 1_000_000);
    let troubles: Vec<Trouble> = trouble::ALL.iter().copied().filter(|_| options.chance(450_000)).collect();
    let lone = lone.then(|| options.below(sites.len() as u64) as usize);
    let mut scenario = Scenario {
        sites,
        accounts,
        chunking: options.pick(&[Chunking::Pieces, Chunking::Anywhere, Chunking::Anywhere, Chunking::Bytes]),
        refuses_words: knobs.refuses_words,
        longest_hint: Span::from_secs(options.pick(&[1, 4, 20])),
        store_latency: Span::from_millis(if options.chance(150_000) { options.pick(&[1, 20, 300]) } else { 0 }),
        finishes_for_nobody: options.chance(100_000),
        late_ppm: options.pick(&[0, 0, 300_000]),
        lone,
        ..Scenario::still(seed, tree)
    };
    match lone {
        Some(healthy) => kill_others(&mut scenario, healthy, &mut options),
        None => {
            daily(&mut scenario, &troubles, &mut options);
            scenario.episodes = episodes(seed, &scenario.sites, &troubles, horizon);
        }
    }
    scenario.sharing = sharing(seed, horizon).filter(|_| lone.is_none());
    if scenario.sharing.is_some() {
        scenario.store_latency = Span::ZERO;
    }
    let habits = Habits {
        leave_ppm: options.pick(&[0, 0, 50_000, 250_000]),
        dawdle_ppm: if scenario.chunking == Chunking::Bytes { 0 } else { options.pick(&[0, 100_000]) },
        stream_ppm: options.pick(&[300_000, 700_000, 1_000_000]),
        structured_ppm: options.pick(&[0, 50_000, 300_000]),
        strange_ppm: if lone.is_some() { 0 } else { 20_000 },
    };
    let mut arrivals = Stream::new(seed, Concern::Arrivals, 0, 0);
    let mut at = Time(1000);
    for number in 0..count {
        at = at.after(arrivals.exponential(spacing));
        scenario.arrivals.push((at, client(seed, number, &providers, &offers, &habits)));
    }
    let mut longest_cooldown = knobs.max_cooldown;
    if options.chance(200_000) && lone.is_none() {
        let later = Knobs::draw(seed, 1, false);
        let limits: Vec<Limits> =
            providers.iter().enumerate().map(|(at, _)| Limits::draw(seed, at as u64, 1, false)).collect();
        let later = Knobs { refuses_words: knobs.refuses_words, ..later };
        longest_cooldown = longest_cooldown.max(later.max_cooldown);
        let when = Time(options.range(1000, horizon.0));
        scenario.reloads.push((when, later.tree(&providers, &offers, &limits)));
    }
    heal(&mut scenario, at, longest_cooldown, &providers, &offers);
    scenario.words = vec![
        format!("{} sources of {} providers, {} names", scenario.sites.len(), providers.len(), offers.len()),
        format!("{count} calls {spacing} apart, {:?} chunks, store {}", scenario.chunking, scenario.store_latency),
        format!("troubles: {}", troubles.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(" ")),
        format!("lone: {lone:?}, episodes: {}, sharing: {:?}", scenario.episodes.len(), scenario.sharing),
    ];
    scenario
}

/// Several gateways on one store, in some runs; the store mostly with troubles of its own.
fn sharing(seed: u64, horizon: Time) -> Option<Sharing> {
    let mut stream = Stream::new(seed, Concern::Store, 2, 0);
    if !stream.chance(150_000) {
        return None;
    }
    let mut times = |most: u64| -> Vec<Time> {
        let count = stream.below(most + 1);
        (0..count).map(|_| Time(stream.below(horizon.0))).collect()
    };
    let wipes = times(2);
    let begins = times(3);
    let mean = Span(horizon.0 / 20 + 500_000);
    let outages = begins.into_iter().map(|from| (from, from.after(stream.exponential(mean)))).collect();
    Some(Sharing {
        gateways: stream.range(1, 4) as u32,
        latency: Span(stream.pick(&[200, 1000, 5000, 40_000, 150_000])),
        lost_ppm: stream.pick(&[0, 0, 2000, 20_000]),
        outages,
        wipes,
        closed: stream.chance(300_000),
    })
}

fn providers(seed: u64, lone: bool) -> Vec<Provider> {
    let mut stream = Stream::new(seed, Concern::Config, 0, 0);
    let openai = [Format::Chat, Format::Responses, Format::Embeddings, Format::Images];
    let count = if lone { stream.range(2, 4) } else { stream.range(1, 4) };
    let family = stream.below(10);
    (0..count)
        .map(|at| {
            let formats = match family {
                0 | 1 => vec![Format::Messages],
                2 if at % 2 == 1 => vec![Format::Messages],
                3 => [&openai[..], &[Format::Messages]].concat(),
                _ => openai.to_vec(),
            };
            let endpoints =
                if stream.chance(200_000) { vec!["eu".into(), "us".into()] } else { vec!["default".into()] };
            let keys = if stream.chance(300_000) { 2 } else { 1 };
            let keys = (0..keys)
                .map(|key| Key {
                    name: format!("k{key}"),
                    value: format!("sk-sim-{at}-{key}-{:08x}", stream.bits() as u32),
                    account: (!lone && stream.chance(200_000)).then(|| "shared".into()),
                })
                .collect();
            Provider { name: format!("p{at}"), formats, endpoints, keys }
        })
        .collect()
}

fn offers(seed: u64, providers: &[Provider], lone: bool) -> Vec<Offer> {
    let mut stream = Stream::new(seed, Concern::Config, 1, 0);
    let mut all: Vec<usize> = (0..providers.len()).collect();
    for at in (1..all.len()).rev() {
        all.swap(at, stream.below(at as u64 + 1) as usize);
    }
    let chain = Offer {
        model: "chain".into(),
        strategy: Some("priority"),
        tiers: all.iter().map(|provider| vec![*provider]).collect(),
    };
    let strategy = stream.pick(&["health_aware", "health_aware", "round_robin", "least_inflight"]);
    let split = if stream.chance(300_000) { stream.range(1, all.len() as u64) as usize } else { all.len() };
    let tiers = [&all[..split], &all[split..]];
    let tiers = tiers.into_iter().filter(|tier| !tier.is_empty()).map(<[usize]>::to_vec).collect();
    let pool = Offer { model: "pool".into(), strategy: Some(strategy), tiers };
    if lone {
        return if stream.chance(500_000) { vec![chain] } else { vec![pool] };
    }
    let mut offers = vec![chain, pool];
    for (at, provider) in providers.iter().enumerate() {
        offers.push(Offer { model: format!("{}/m", provider.name), strategy: None, tiers: vec![vec![at]] });
    }
    offers
}

/// The sources in the gateway's order and names, and the quotas behind their keys.
fn sites(seed: u64, providers: &[Provider], lone: bool) -> (Vec<Site>, Vec<Account>) {
    let mut sites = Vec::new();
    let mut accounts: Vec<(String, Account)> = Vec::new();
    for (at, provider) in providers.iter().enumerate() {
        for (endpoint, name) in provider.endpoints.iter().enumerate() {
            let base =
                if provider.endpoints.len() == 1 { provider.name.clone() } else { format!("{}/{name}", provider.name) };
            for key in &provider.keys {
                let place = sites.len();
                let mut stream = Stream::new(seed, Concern::Config, 2, place as u64);
                let named = key.account.clone().unwrap_or_else(|| key.value.clone());
                let account = accounts.iter().position(|(known, _)| *known == named).unwrap_or_else(|| {
                    let limit = if lone { 0 } else { stream.pick(&[0, 0, 0, 5, 20, 100]) };
                    let window = Span::from_millis(stream.pick(&[1000, 5000, 30_000]));
                    accounts.push((named, Account::new(limit as u32, window)));
                    accounts.len() - 1
                });
                let address =
                    Address { site: place, provider: at, region: (endpoint as u8 + stream.below(2) as u8) % 2 };
                let mut site = Site::new(&format!("{base}/{}", key.name), address, account, &key.value);
                site.head = (Span::from_millis(stream.range(5, 200)), Span::from_millis(stream.range(10, 400)));
                site.gap = Span::from_millis(stream.pick(&[2, 20, 100]));
                site.pieces = (1, stream.pick(&[3, 8, 30]));
                site.style = Style::draw(&mut stream);
                if !lone {
                    site.gate = (stream.pick(&[0, 0, 0, 1, 4]) as u32, stream.pick(&[429, 503]));
                    site.watchdog =
                        (Span::from_millis(stream.pick(&[0, 0, 0, 0, 500, 2000])), stream.pick(&[503, 504, 500]));
                }
                sites.push(site);
            }
        }
    }
    (sites, accounts.into_iter().map(|(_, account)| account).collect())
}

fn daily(scenario: &mut Scenario, troubles: &[Trouble], options: &mut Stream) {
    let share = options.pick(&[0, 20_000, 100_000, 300_000, 700_000]);
    if troubles.is_empty() {
        return;
    }
    for site in &mut scenario.sites {
        let kinds = options.range(1, 6);
        for _ in 0..kinds {
            site.daily.push((options.pick(troubles), share / kinds));
        }
    }
}

fn kill_others(scenario: &mut Scenario, healthy: usize, options: &mut Stream) {
    scenario.store_latency = Span::ZERO;
    let deaths =
        [Trouble::Refused, Trouble::Status(500), Trouble::Status(503), Trouble::BadKey, Trouble::ResetBeforeHead];
    for site in (0..scenario.sites.len()).filter(|site| *site != healthy) {
        scenario.episodes.push(Episode {
            scope: Scope::Site(site),
            from: Time::ZERO,
            until: Time::NEVER,
            shape: Shape::Block,
            troubles: vec![options.pick(&deaths)],
            share_ppm: 1_000_000,
        });
    }
}

fn episodes(seed: u64, sites: &[Site], troubles: &[Trouble], horizon: Time) -> Vec<Episode> {
    let mut stream = Stream::new(seed, Concern::Episodes, 0, 0);
    if troubles.is_empty() {
        return Vec::new();
    }
    let count = stream.pick(&[0, 1, 2, 4, 8]);
    (0..count)
        .map(|_| {
            let from = Time(stream.below(horizon.0));
            let until = from.after(stream.exponential(Span(horizon.0 / 4)));
            let site = stream.below(sites.len() as u64) as usize;
            let scope = match stream.below(6) {
                0 => Scope::World,
                1 => Scope::Region(stream.below(2) as u8),
                2 => Scope::Provider(sites[site].address.provider),
                _ => Scope::Site(site),
            };
            let shape = match stream.below(3) {
                0 => Shape::Hill,
                1 => Shape::Flapping(Span(stream.range(50_000, 1_000_000 + horizon.0 / 8))),
                _ => Shape::Block,
            };
            let kinds = stream.range(1, 3);
            let troubles = (0..kinds).map(|_| stream.pick(troubles)).collect();
            Episode { scope, from, until, shape, troubles, share_ppm: stream.pick(&[300_000, 900_000, 1_000_000]) }
        })
        .collect()
}

/// How the clients of a run are.
struct Habits {
    leave_ppm: u64,
    dawdle_ppm: u64,
    stream_ppm: u64,
    structured_ppm: u64,
    strange_ppm: u64,
}

fn client(seed: u64, number: u64, providers: &[Provider], offers: &[Offer], habits: &Habits) -> Client {
    let mut stream = Stream::new(seed, Concern::Client, number, 0);
    let mut operation = stream.pick(&[
        Operation::ChatCompletions,
        Operation::ChatCompletions,
        Operation::ChatCompletions,
        Operation::Messages,
        Operation::Messages,
        Operation::Responses,
        Operation::Responses,
        Operation::Embeddings,
        Operation::ImageGenerations,
        Operation::CountTokens,
    ]);
    let offer = &offers[stream.below(offers.len() as u64) as usize];
    if !offer.speaks(providers, operation.format()) && !stream.chance(habits.strange_ppm) {
        let spoken = Operation::ALL.into_iter().filter(|operation| {
            !matches!(operation, Operation::ImageEdits | Operation::ImageVariations)
                && offer.speaks(providers, operation.format())
        });
        operation = stream.pick(&spoken.collect::<Vec<_>>());
    }
    let raw = stream.chance(habits.strange_ppm);
    let format = if raw { Format::Raw } else { operation.format() };
    let streams = matches!(format, Format::Chat | Format::Messages | Format::Responses | Format::Images);
    let stream_wanted = streams && stream.chance(habits.stream_ppm);
    let structured = matches!(format, Format::Chat | Format::Responses) && stream.chance(habits.structured_ppm);
    let cause = if stream.chance(100_000) { CancelCause::Shutdown } else { CancelCause::ClientGone };
    let mut leaves = stream.chance(habits.leave_ppm).then(|| (stream.exponential(Span::from_secs(1)), cause));
    let mut dawdles = Span::ZERO;
    if stream.chance(habits.dawdle_ppm) {
        dawdles = Span::from_millis(stream.range(5, 3000));
        if stream.chance(200_000) {
            dawdles = Span::from_secs(1000);
            leaves = Some((Span::from_secs(stream.range(1, 600)), CancelCause::ClientStalled));
        }
    }
    let known = !stream.chance(habits.strange_ppm / 2);
    let model = if raw {
        format!("{}/m", stream.pick(&providers.iter().map(|p| &*p.name).collect::<Vec<_>>()))
    } else if known {
        offer.model.clone()
    } else {
        "nobody".into()
    };
    Client {
        model,
        operation: (!raw).then_some(operation),
        method: if raw { stream.pick(&["GET", "POST", "PUT"]) } else { "POST" },
        ask: Ask { format, stream: stream_wanted, include_usage: stream.chance(300_000), structured },
        leaves,
        dawdles,
        words: stream.range(1, 40),
    }
}

/// Puts a time behind the trouble in which all is well: calls trickle until every breaker had its chance, then every
/// call must end well.
fn heal(scenario: &mut Scenario, last: Time, longest_cooldown: Span, providers: &[Provider], offers: &[Offer]) {
    // What is under way may take its longest timeouts and its waits; a debt of tokens is at most five minutes.
    let at = last.after(Span::from_secs(5));
    let judged = at.after(Span(longest_cooldown.0 + 2 * scenario.longest_hint.0 + 420_000_000));
    scenario.heal = Some(Heal { at, judged });
    let mut stream = Stream::new(scenario.seed, Concern::Arrivals, 1, 0);
    let mut now = at;
    let mut number = 1_000_000;
    let until = judged.after(Span::from_secs(120));
    while now < until {
        now = now.after(Span(stream.range(2_000_000, 6_000_000)));
        let habits = Habits { leave_ppm: 0, dawdle_ppm: 0, stream_ppm: 500_000, structured_ppm: 0, strange_ppm: 0 };
        let mut one = client(scenario.seed, number, providers, offers, &habits);
        one.model.clone_from(&offers[(number % offers.len() as u64) as usize].model);
        let offer = &offers[(number % offers.len() as u64) as usize];
        if one.operation.is_none_or(|operation| !offer.speaks(providers, operation.format())) {
            let format = providers[offer.tiers[0][0]].formats[0];
            one.operation =
                Some(if format == Format::Messages { Operation::Messages } else { Operation::ChatCompletions });
            one.ask = Ask { format, stream: one.ask.stream, include_usage: false, structured: false };
        }
        scenario.arrivals.push((now, one));
        number += 1;
    }
}
