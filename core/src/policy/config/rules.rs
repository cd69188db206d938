//! `failover_rules`, of the default policy, a model or a provider: all by the same rules (F8, F14).

use alloc::format;

use regex::Regex;

use super::RuleOverrides;
use super::reader::{Node, Table};
use crate::policy::rules::{ERROR_STATUSES, MAX_RULES, compile};
use crate::policy::{Rules, StopRule};

/// Both groups.
pub(super) fn groups(table: &mut Table<'_, '_>) -> RuleOverrides {
    let success = table.key("success_failover_patterns");
    let success = success.and_then(|mut node| node.list_of(MAX_RULES, "rules", |rule| success_rule(rule)));
    let stop = table.key("error_stop_patterns");
    let stop = stop.and_then(|mut node| node.list_of(MAX_RULES, "rules", |rule| stop_rule(rule)));
    RuleOverrides { success, stop }
}

/// A success rule: a pattern; a status could only be 200 (F9).
fn success_rule(mut node: Node<'_, '_>) -> Option<Regex> {
    let before = node.found();
    let pattern = node.table_mut(|table| {
        table.key("status_codes").and_then(|codes| {
            codes.list(|mut code| match code.count_mut(0..=u64::MAX)? {
                200 => Some(200_u16),
                other => code.wrong(format!("a success rule can only look at status 200, not {other}")),
            })
        });
        table.key("pattern").and_then(pattern)
    })?;
    if pattern.is_none() && node.found() == before {
        return node.wrong("a success rule needs a `pattern`");
    }
    pattern
}

/// A stop rule: statuses, a pattern, or both (F12).
fn stop_rule(mut node: Node<'_, '_>) -> Option<StopRule> {
    let before = node.found();
    let rule = node.table_mut(|table| StopRule {
        statuses: table.key("status_codes").and_then(|codes| codes.list(error_status)).unwrap_or_default(),
        pattern: table.key("pattern").and_then(pattern),
    })?;
    if rule.statuses.is_empty() && rule.pattern.is_none() && node.found() == before {
        return node.wrong("an empty rule would stop on every error; give it `status_codes`, a `pattern`, or both");
    }
    Some(rule)
}

fn pattern(node: Node<'_, '_>) -> Option<Regex> {
    node.parsed(|text| compile(text.as_str()))
}

/// A status of an error: 400–599.
pub(super) fn error_status(mut node: Node<'_, '_>) -> Option<u16> {
    let status = node.count_mut(0..=u64::MAX)?;
    match u16::try_from(status) {
        Ok(status) if ERROR_STATUSES.contains(&status) => Some(status),
        _ => node.wrong(format!("{status} is no status of an error; 400–599 are")),
    }
}

/// A provider's own rules: nothing stands beneath them.
pub(super) fn own(table: &mut Table<'_, '_>) -> Rules {
    let RuleOverrides { success, stop } = table.section("failover_rules", groups);
    Rules { success: success.unwrap_or_default(), stop: stop.unwrap_or_default() }
}
