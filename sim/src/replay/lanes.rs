//! The picture: a lane for each source, its attempts over time, its breakers below.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use surefoot_core::outcome::Outcome;
use surefoot_core::pool::BreakerState;
use surefoot_core::time::{Span, Time};

use super::facts::{Attempt, Change, Facts};
use super::html::escaped;

/// Attempts of a side up to which each is a bar of its own; beyond, columns count them.
const BARS: u64 = 1500;
/// Rows of a lane for attempts that go on at the same time.
const ROWS: usize = 14;
/// Columns of a lane.
const COLUMNS: usize = 180;
/// Sources with a lane.
const LANES: usize = 40;
/// Stretches of a breaker that are drawn.
const BANDS: usize = 400;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 1180.0;
const ROW: f64 = 8.0;
const STRIP: f64 = 14.0;

/// What an attempt came to, as it is coloured: the word, the pattern.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Served,
    Failed,
    Limited,
    Dead,
    Other,
}

impl Kind {
    pub(super) const ALL: [Kind; 5] = [Kind::Served, Kind::Failed, Kind::Limited, Kind::Dead, Kind::Other];

    pub(super) fn of(attempt: &Attempt) -> Kind {
        match attempt.outcome {
            Some(Outcome::Success) => Kind::Served,
            Some(Outcome::Transient) => Kind::Failed,
            Some(Outcome::RateLimited) => Kind::Limited,
            Some(Outcome::SourceDead) => Kind::Dead,
            Some(Outcome::ResultInvalid | Outcome::RequestRejected | Outcome::Cancelled) | None => Kind::Other,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Served => "a good answer",
            Kind::Failed => "failed",
            Kind::Limited => "rate limited",
            Kind::Dead => "key dead",
            Kind::Other => "refused, invalid or cancelled",
        }
    }

    pub(super) fn fill(self) -> &'static str {
        match self {
            Kind::Served => "url(#served)",
            Kind::Failed => "url(#failed)",
            Kind::Limited => "url(#limited)",
            Kind::Dead => "url(#dead)",
            Kind::Other => "url(#other)",
        }
    }
}

/// The patterns that all pictures of a page use: told apart without colours, too.
pub(super) const PATTERNS: &str = concat!(
    "<svg class=\"defs\" aria-hidden=\"true\"><defs>",
    "<pattern id=\"served\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" height=\"4\" style=\"fill:var(--good)\"/></pattern>",
    "<pattern id=\"failed\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" style=\"fill:var(--failed)\"/><rect width=\"1.6\" height=\"5\" style=\"fill:var(--paper)\"/></pattern>",
    "<pattern id=\"limited\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" height=\"4\" style=\"fill:var(--limited)\"/><rect width=\"4\" height=\"1.4\" style=\"fill:var(--paper)\"/></pattern>",
    "<pattern id=\"dead\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect width=\"5\" height=\"5\" style=\"fill:var(--dead)\"/><path d=\"M0 0L5 5M5 0L0 5\" style=\"stroke:var(--paper)\" stroke-width=\"1\"/></pattern>",
    "<pattern id=\"other\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" height=\"4\" style=\"fill:var(--paper)\"/><circle cx=\"2\" cy=\"2\" r=\"1.2\" style=\"fill:var(--other)\"/></pattern>",
    "<pattern id=\"open\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" style=\"fill:var(--open);opacity:.25\"/><rect width=\"2\" height=\"6\" style=\"fill:var(--open)\"/></pattern>",
    "<pattern id=\"half\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect width=\"6\" height=\"6\" style=\"fill:var(--half);opacity:.25\"/><rect width=\"2\" height=\"6\" style=\"fill:var(--half)\"/></pattern>",
    "<pattern id=\"own\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><rect width=\"4\" height=\"4\" style=\"fill:var(--link)\"/></pattern>",
    "<pattern id=\"lent\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect width=\"5\" height=\"5\" style=\"fill:var(--link)\"/><rect width=\"1.5\" height=\"5\" style=\"fill:var(--paper)\"/></pattern>",
    "<pattern id=\"reused\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"5\" height=\"5\" style=\"fill:var(--paper)\"/><rect width=\"2\" height=\"5\" style=\"fill:var(--link)\"/></pattern>",
    "<pattern id=\"modelled\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect width=\"5\" height=\"5\" style=\"fill:var(--paper)\"/><circle cx=\"2.5\" cy=\"2.5\" r=\"1.4\" style=\"fill:var(--ink)\"/></pattern>",
    "</defs></svg>"
);

struct Lane<'a> {
    attempts: Vec<&'a Attempt>,
    /// By model.
    changes: BTreeMap<&'a str, Vec<&'a Change>>,
}

/// Where times are.
#[derive(Copy, Clone)]
pub(super) struct Scale {
    pub(super) from: Time,
    pub(super) took: Span,
}

impl Scale {
    /// From the first arrival to the last end of these calls.
    pub(super) fn of<'a>(facts: impl Iterator<Item = &'a Facts>) -> Scale {
        let (mut from, mut to) = (Time::NEVER, Time::ZERO);
        for call in facts {
            from = from.min(call.arrived);
            to = to.max(call.ended);
        }
        Scale { from: from.min(to), took: Span(to.since(from.min(to)).0.max(1)) }
    }

    fn x(self, at: Time) -> f64 {
        let share = at.since(self.from).0 as f64 / self.took.0 as f64;
        LEFT + (RIGHT - LEFT) * share.clamp(0.0, 1.0)
    }

    fn column(self, at: Time) -> usize {
        let place = u128::from(at.since(self.from).0) * COLUMNS as u128 / u128::from(self.took.0);
        usize::try_from(place).unwrap_or(COLUMNS).min(COLUMNS - 1)
    }
}

/// Whether so many attempts can be a bar each.
pub(super) fn fit(attempts: u64) -> bool {
    attempts <= BARS
}

/// The picture of one side, with a bar for each attempt or with columns that count them; and what it leaves out.
pub(super) fn lanes<'a>(
    title: &str,
    scale: Scale,
    bars: bool,
    facts: impl Iterator<Item = &'a Facts>,
) -> (String, Vec<String>) {
    let mut lanes: BTreeMap<&str, Lane<'a>> = BTreeMap::new();
    let mut count = 0;
    let lane = |lanes: &mut BTreeMap<&'a str, Lane<'a>>, source: &'a str| {
        lanes.entry(source).or_insert_with(|| Lane { attempts: Vec::new(), changes: BTreeMap::new() });
    };
    for call in facts {
        for attempt in &call.attempts {
            count += 1;
            lane(&mut lanes, &attempt.source);
            lanes.entry(&attempt.source).and_modify(|lane| lane.attempts.push(attempt));
        }
        for change in &call.changes {
            lane(&mut lanes, &change.source);
            lanes.entry(&change.source).and_modify(|lane| lane.changes.entry(&change.model).or_default().push(change));
        }
    }
    let mut left_out = Vec::new();
    if lanes.len() > LANES {
        left_out.push(format!("{} sources have no lane here; the table has them all", lanes.len() - LANES));
    }
    if !bars {
        left_out.push(format!(
            "{count} attempts; where either side has more than {BARS}, every column counts those that started in {}",
            Span(scale.took.0 / COLUMNS as u64)
        ));
    }
    let (mut body, mut y) = (String::new(), 8.0);
    for (source, lane) in lanes.iter_mut().take(LANES) {
        lane.attempts.sort_by_key(|attempt| attempt.started);
        y = if bars {
            lane.bars(source, scale, y, &mut body, &mut left_out)
        } else {
            lane.columns(source, scale, y, &mut body)
        };
        y = lane.strips(scale, y, &mut body, &mut left_out) + 12.0;
    }
    axis(scale, y, &mut body);
    let height = y + 24.0;
    let svg = format!(
        "<svg class=\"lanes\" viewBox=\"0 0 1200 {height:.0}\" role=\"group\" aria-label=\"{}: attempts of each source over time\">{body}</svg>",
        escaped(title)
    );
    (svg, left_out)
}

impl Lane<'_> {
    fn open(&self, source: &str, y: f64, height: f64, body: &mut String) {
        let mut told = String::new();
        for kind in Kind::ALL {
            let count = self.attempts.iter().filter(|attempt| Kind::of(attempt) == kind).count();
            if count > 0 {
                let _ = write!(told, ", {count} {}", kind.word());
            }
        }
        let shown = shortened(source);
        let _ = write!(
            body,
            "<g role=\"img\" aria-label=\"{}: {} attempts{told}\"><rect class=\"lane\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/><text x=\"0\" y=\"{:.1}\">{}<title>{}</title></text><text class=\"soft\" x=\"0\" y=\"{:.1}\">{} attempts</text>",
            escaped(source),
            self.attempts.len(),
            RIGHT - LEFT,
            y + 12.0,
            escaped(&shown),
            escaped(source),
            y + 27.0,
            self.attempts.len()
        );
    }

    /// A bar for each attempt; those that go on at the same time in rows of their own.
    fn bars(&self, source: &str, scale: Scale, y: f64, body: &mut String, left_out: &mut Vec<String>) -> f64 {
        let mut free = [Time::ZERO; ROWS];
        let (mut used, mut missing, mut drawn) = (1, 0, String::new());
        for attempt in &self.attempts {
            let Some(row) = free.iter().position(|free| *free <= attempt.started) else {
                missing += 1;
                continue;
            };
            free[row] = attempt.ended;
            used = used.max(row + 1);
            let (from, to) = (scale.x(attempt.started), scale.x(attempt.ended));
            let kind = Kind::of(attempt);
            let how = attempt.reason.map_or("no end", |reason| reason.as_str());
            let _ = write!(
                drawn,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}: {} ({how}), {} after {}</title></rect>",
                y + row as f64 * ROW + 1.0,
                (to - from).max(1.5),
                ROW - 2.0,
                kind.fill(),
                attempt.why.as_str(),
                kind.word(),
                attempt.ended.since(attempt.started),
                attempt.started.since(scale.from),
            );
        }
        let height = (used as f64 * ROW).max(32.0);
        self.open(source, y, height, body);
        body.push_str(&drawn);
        body.push_str("</g>");
        if missing > 0 {
            left_out.push(format!("{missing} attempts on {source} have no bar: more than {ROWS} went on at once"));
        }
        y + height
    }

    /// How many attempts started in each stretch of time, by what they came to.
    fn columns(&self, source: &str, scale: Scale, y: f64, body: &mut String) -> f64 {
        const HEIGHT: f64 = 56.0;
        let mut counts = vec![[0usize; Kind::ALL.len()]; COLUMNS];
        for attempt in &self.attempts {
            counts[scale.column(attempt.started)][Kind::of(attempt) as usize] += 1;
        }
        let most = counts.iter().map(|column| column.iter().sum::<usize>()).max().unwrap_or_default().max(1);
        self.open(source, y, HEIGHT, body);
        let width = (RIGHT - LEFT) / COLUMNS as f64;
        for (place, column) in counts.iter().enumerate() {
            let mut top = y + HEIGHT;
            for kind in Kind::ALL {
                let count = column[kind as usize];
                if count == 0 {
                    continue;
                }
                let height = HEIGHT * count as f64 / most as f64;
                top -= height;
                let _ = write!(
                    body,
                    "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\"><title>{count} {}</title></rect>",
                    LEFT + place as f64 * width,
                    width - 0.5,
                    kind.fill(),
                    kind.word()
                );
            }
        }
        let _ = write!(body, "<text class=\"soft\" x=\"0\" y=\"{:.1}\">a full column: {most}</text></g>", y + 42.0);
        y + HEIGHT
    }

    /// A strip for each breaker that moved.
    fn strips(&self, scale: Scale, mut y: f64, body: &mut String, left_out: &mut Vec<String>) -> f64 {
        for (model, changes) in &self.changes {
            let mut changes = changes.clone();
            changes.sort_by_key(|change| change.at);
            let end = scale.from.after(scale.took);
            let mut bands: Vec<(Time, Time, BreakerState)> = Vec::new();
            if let Some(first) = changes.first() {
                bands.push((scale.from, first.at, first.from));
            }
            for (place, change) in changes.iter().enumerate() {
                let until = changes.get(place + 1).map_or(end, |next| next.at);
                bands.push((change.at, until, change.to));
            }
            bands.retain(|(.., state)| *state != BreakerState::Closed);
            if bands.len() > BANDS {
                left_out.push(format!("{} stretches of the breaker of {model} are not drawn", bands.len() - BANDS));
            }
            let name = if model.is_empty() { "as asked" } else { model };
            let opened = changes.iter().filter(|change| change.to == BreakerState::Open).count();
            let _ = write!(
                body,
                "<g role=\"img\" aria-label=\"the breaker of {} opened {opened} times\"><text class=\"soft\" x=\"12\" y=\"{:.1}\">breaker: {}</text>",
                escaped(name),
                y + 11.0,
                escaped(&shortened(name)),
            );
            for (from, to, state) in bands.iter().take(BANDS) {
                let (left, right) = (scale.x(*from), scale.x(*to));
                let fill = if *state == BreakerState::Open { "url(#open)" } else { "url(#half)" };
                let _ = write!(
                    body,
                    "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\"><title>{} for {}</title></rect>",
                    y + 2.0,
                    (right - left).max(1.0),
                    STRIP - 4.0,
                    state.as_str(),
                    to.since(*from)
                );
            }
            body.push_str("</g>");
            y += STRIP;
        }
        y
    }
}

fn axis(scale: Scale, y: f64, body: &mut String) {
    let _ = write!(body, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
    for tick in 0..=8u64 {
        let at = Span(scale.took.0 / 8 * tick);
        let x = scale.x(scale.from.after(at));
        let anchor = match tick {
            0 => "start",
            8 => "end",
            _ => "middle",
        };
        let _ = write!(
            body,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{:.1}\"/><text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{:.1} s</text>",
            y + 4.0,
            y + 18.0,
            at.0 as f64 / 1e6
        );
    }
}

/// As much of a name as has a place.
fn shortened(name: &str) -> String {
    if name.chars().count() <= 26 {
        return name.to_owned();
    }
    name.chars().take(25).chain(['…']).collect()
}
