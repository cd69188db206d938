//! The result as one page: no script, nothing from elsewhere, nothing of the trace but as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use surefoot_core::outcome::Outcome;

use super::facts::{Basis, Facts};
use super::figures::{Figures, Source};
use super::lanes::{Kind, PATTERNS, Scale, fit, lanes};
use super::report::{Comparison, life, percent, rows, success, time};
use super::whatif::Trace;
use super::words::date;

/// Calls that are listed.
const LISTED: usize = 500;

/// The page of a trace, and of what another policy of that name made of it.
pub fn page(name: &str, trace: &Trace, other: Option<(&str, &Comparison<'_>)>) -> String {
    let recorded = || trace.calls.iter().map(|call| &call.facts);
    let mut out = String::new();
    let title = match other {
        Some((policy, _)) => format!("{name} under {policy}"),
        None => name.to_owned(),
    };
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{}</title><style>{}</style></head><body>\n<main>\n<h1>{}</h1>\n",
        escaped(&title),
        include_str!("page.css"),
        escaped(&title)
    );
    out.push_str(PATTERNS);
    let figures = match other {
        Some((_, compared)) => compared.before.clone(),
        None => Figures::of(trace, recorded()),
    };
    let begun = trace.calls.first().map(|call| format!(", from {}", date(call.begin.unix_ms))).unwrap_or_default();
    let _ = write!(out, "<p class=\"soft\">{} calls over {}{begun}.", trace.calls.len(), figures.took);
    if trace.left_out > 0 {
        let _ =
            write!(out, " {} more have no end in the trace, or the gateway’s stop was it: left out.", trace.left_out);
    }
    if let Some(first) = trace.problems.first() {
        let _ = write!(
            out,
            " {} lines cannot be read, and their calls are left out: {}.",
            trace.problems.len(),
            escaped(&first.to_string())
        );
    }
    if trace.processes > 1 {
        let _ = write!(out, " {} processes wrote it.", trace.processes);
    }
    out.push_str("</p>\n");
    match other {
        Some((policy, compared)) => {
            totals(policy, compared, &mut out);
            basis(policy, compared, &mut out);
        }
        None => alone(&figures, &mut out),
    }
    out.push_str("<h2 id=\"time\">Sources over time</h2>\n");
    legend(&mut out);
    let scale = match other {
        Some((_, compared)) => Scale::of(recorded().chain(compared.other.calls.iter())),
        None => Scale::of(recorded()),
    };
    let bars = fit(figures.all.attempts.max(other.map_or(0, |(_, compared)| compared.after.all.attempts)));
    picture("Recorded", scale, bars, recorded(), &mut out);
    if let Some((policy, compared)) = other {
        picture(policy, scale, bars, compared.other.calls.iter(), &mut out);
        changed(policy, compared, &mut out);
        models(policy, compared, &mut out);
    }
    let after = other.map(|(policy, compared)| (policy, &compared.after));
    sources(&figures, after, &mut out);
    if let Some((_, compared)) = other {
        notes(&compared.other.notes, &mut out);
    }
    out.push_str("</main></body></html>\n");
    out
}

/// A text of the trace's, as text. Control characters go: they mean nothing to a reader and something to a terminal.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

fn table(label: &str, head: &[(&str, bool)], rows: &[Vec<(String, bool)>], out: &mut String) {
    let _ = write!(
        out,
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table><thead><tr>",
        escaped(label)
    );
    for (cell, is_text) in head {
        let class = if *is_text { " class=\"text\"" } else { "" };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escaped(cell));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for (place, (cell, is_text)) in row.iter().enumerate() {
            let class = if *is_text { " class=\"text\"" } else { "" };
            let _ = match place {
                0 => write!(out, "<th scope=\"row\">{}</th>", escaped(cell)),
                _ => write!(out, "<td{class}>{}</td>", escaped(cell)),
            };
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>\n");
}

fn number(cell: impl ToString) -> (String, bool) {
    (cell.to_string(), false)
}

fn text(cell: impl ToString) -> (String, bool) {
    (cell.to_string(), true)
}

fn totals(policy: &str, compared: &Comparison<'_>, out: &mut String) {
    let (gained, lost) = compared.gained_and_lost();
    let _ = writeln!(
        out,
        "<p><strong>{} → {}</strong> of the calls succeed: {gained} more do, {lost} that did no longer do. “Recorded” is what the trace says; \
         “{}” is what would have been under it.</p>",
        success(&compared.before.all),
        success(&compared.after.all),
        escaped(policy)
    );
    let rows: Vec<Vec<(String, bool)>> = rows(&compared.before.all, &compared.after.all)
        .into_iter()
        .map(|(label, before, after, change)| vec![text(label), number(before), number(after), number(change)])
        .collect();
    table("All calls", &[("", false), ("recorded", false), (policy, false), ("change", false)], &rows, out);
}

fn alone(figures: &Figures, out: &mut String) {
    let rows: Vec<Vec<(String, bool)>> = rows(&figures.all, &figures.all)
        .into_iter()
        .map(|(label, before, ..)| vec![text(label), number(before)])
        .collect();
    table("All calls", &[("", false), ("recorded", false)], &rows, out);
}

fn basis(policy: &str, compared: &Comparison<'_>, out: &mut String) {
    let bases = compared.after.bases();
    let all = compared.after.all.attempts.max(1) as f64;
    out.push_str("<h2 id=\"basis\">What the figures rest on</h2>\n");
    let (modelled, _) = compared.modelled();
    let _ = writeln!(
        out,
        "<p>{} of {}’s attempts had to be modelled: nothing was recorded there about then, or not to its end.</p>",
        percent(modelled),
        escaped(policy)
    );
    let names = [
        (Basis::Own, "what the same call met", "own"),
        (Basis::Lent, "what another call met, nobody else using it", "lent"),
        (Basis::Reused, "what a call met, once more", "reused"),
        (Basis::Modelled, "modelled", "modelled"),
    ];
    let share = |basis: Basis| bases.get(&basis).copied().unwrap_or_default() as f64 / all;
    out.push_str(
        "<svg width=\"760\" height=\"26\" viewBox=\"0 0 760 26\" role=\"img\" style=\"max-width:100%\" aria-label=\"",
    );
    let told: Vec<String> =
        names.iter().map(|(basis, name, _)| format!("{}: {}", name, percent(share(*basis)))).collect();
    let _ = write!(out, "{}\">", escaped(&told.join(", ")));
    let mut x = 0.0;
    for (basis, _, pattern) in names {
        let width = 760.0 * share(basis);
        let _ = write!(out, "<rect x=\"{x:.1}\" y=\"2\" width=\"{width:.1}\" height=\"22\" fill=\"url(#{pattern})\"/>");
        x += width;
    }
    out.push_str("</svg>\n<ul class=\"legend\">");
    for (basis, name, pattern) in names {
        let _ = write!(
            out,
            "<li><svg width=\"18\" height=\"14\" aria-hidden=\"true\"><rect width=\"18\" height=\"14\" fill=\"url(#{pattern})\"/></svg>{name}: {}</li>",
            percent(share(basis))
        );
    }
    out.push_str("</ul>\n");
}

fn legend(out: &mut String) {
    out.push_str("<ul class=\"legend\">");
    let kinds = Kind::ALL.iter().map(|kind| (kind.fill(), kind.word()));
    for (fill, word) in kinds.chain([("url(#open)", "breaker open"), ("url(#half)", "breaker half-open")]) {
        let _ = write!(
            out,
            "<li><svg width=\"18\" height=\"14\" aria-hidden=\"true\"><rect width=\"18\" height=\"14\" fill=\"{fill}\"/></svg>{word}</li>"
        );
    }
    out.push_str("</ul>\n");
}

fn picture<'a>(title: &str, scale: Scale, bars: bool, facts: impl Iterator<Item = &'a Facts>, out: &mut String) {
    let (svg, left_out) = lanes(title, scale, bars, facts);
    let _ = writeln!(
        out,
        "<h3>{}</h3>\n<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{svg}</div>",
        escaped(title),
        escaped(title)
    );
    for line in left_out {
        let _ = writeln!(out, "<p class=\"soft\">{}.</p>", escaped(&line));
    }
}

fn changed(policy: &str, compared: &Comparison<'_>, out: &mut String) {
    let _ = writeln!(out, "<h2 id=\"changed\">{} calls that end otherwise</h2>", compared.changed.len());
    if compared.changed.is_empty() {
        out.push_str("<p>Every call ends as it did.</p>\n");
        return;
    }
    let rows: Vec<Vec<(String, bool)>> = compared
        .changed
        .iter()
        .take(LISTED)
        .filter_map(|place| {
            let (recorded, other) = (compared.trace.calls.get(*place)?, compared.other.calls.get(*place)?);
            let turn = match (recorded.facts.is_success(), other.is_success()) {
                (false, true) => "gained",
                (true, false) => "lost",
                _ => "other error",
            };
            let at = recorded.facts.arrived.since(compared.trace.calls.first()?.facts.arrived);
            Some(vec![
                text(format!("{} (line {})", recorded.begin.id, recorded.line)),
                text(&*recorded.begin.request_id),
                number(at),
                text(&*recorded.route.model),
                text(turn),
                text(life(&recorded.facts)),
                text(life(other)),
            ])
        })
        .collect();
    let head = [
        ("call", true),
        ("request", true),
        ("at", false),
        ("model", true),
        ("", true),
        ("recorded", true),
        (policy, true),
    ];
    let _ = write!(
        out,
        "<details{}><summary>The list, with what each attempt met</summary>",
        if rows.len() <= 50 { " open" } else { "" }
    );
    table("Calls that end otherwise", &head, &rows, out);
    out.push_str("</details>\n");
    if compared.changed.len() > LISTED {
        let _ = writeln!(out, "<p class=\"soft\">{} more are not listed.</p>", compared.changed.len() - LISTED);
    }
}

fn models(policy: &str, compared: &Comparison<'_>, out: &mut String) {
    out.push_str("<h2 id=\"models\">By model</h2>\n");
    let mut rows = Vec::new();
    for (model, before) in &compared.before.models {
        let Some(after) = compared.after.models.get(model) else { continue };
        for (side, it) in [("recorded", before), (policy, after)] {
            rows.push(vec![
                text(model),
                text(side),
                number(it.calls),
                number(success(it)),
                number(it.attempts),
                number(it.transfers),
                number(it.retries),
                number(time(&it.added, 50)),
                number(time(&it.added, 95)),
                number(time(&it.added, 99)),
                number(it.wasted_time),
                number(it.wasted_tokens),
            ]);
        }
    }
    let head = [
        ("model", true),
        ("", true),
        ("calls", false),
        ("success", false),
        ("attempts", false),
        ("transfers", false),
        ("retries", false),
        ("added p50", false),
        ("p95", false),
        ("p99", false),
        ("wasted time", false),
        ("tokens, about", false),
    ];
    table("By model", &head, &rows, out);
}

fn sources(before: &Figures, after: Option<(&str, &Figures)>, out: &mut String) {
    out.push_str("<h2 id=\"sources\">By source</h2>\n");
    let names: BTreeSet<&String> =
        before.sources.keys().chain(after.iter().flat_map(|(_, after)| after.sources.keys())).collect();
    let nothing = Source::default();
    let mut rows = Vec::new();
    for name in names {
        let sides = [("recorded", before)].into_iter().chain(after);
        for (side, figures) in sides {
            let it = figures.sources.get(name).unwrap_or(&nothing);
            let mut row = vec![
                text(name),
                text(side),
                number(it.attempts),
                number(it.served),
                number(it.outcome(Outcome::Transient)),
                number(it.outcome(Outcome::RateLimited)),
                number(it.outcome(Outcome::SourceDead)),
                number(it.opened),
                number(it.wasted_time),
                number(it.wasted_tokens),
            ];
            if after.is_some() {
                let is_recorded = side == "recorded";
                let bases = [Basis::Lent, Basis::Reused, Basis::Modelled];
                row.extend(bases.map(|basis| if is_recorded { number("") } else { number(it.basis(basis)) }));
            }
            rows.push(row);
        }
    }
    let mut head = vec![
        ("source", true),
        ("", true),
        ("attempts", false),
        ("served", false),
        ("failed", false),
        ("429", false),
        ("key dead", false),
        ("breaker opened", false),
        ("wasted time", false),
        ("tokens, about", false),
    ];
    if after.is_some() {
        head.extend([("lent", false), ("reused", false), ("modelled", false)]);
    }
    table("By source", &head, &rows, out);
}

fn notes(notes: &[String], out: &mut String) {
    if notes.is_empty() {
        return;
    }
    out.push_str("<h2 id=\"notes\">Notes</h2>\n<ul>");
    for note in notes {
        let _ = write!(out, "<li>{}</li>", escaped(note));
    }
    out.push_str("</ul>\n");
}
