//! What a call reads of the configuration: defaults with the overrides of its provider and its model.

use super::{
    CallPolicy, Config, Format, Model, Policy, PolicyOverrides, Provider, ProviderPolicy, Retry, RetryOverrides,
    TimeoutOverrides, Timeouts, Window, WindowOverrides,
};
use crate::policy::Rules;

impl Config {
    /// The policy of a model's calls; of calls without a virtual model when `None`.
    pub fn call_policy(&self, model: Option<&Model>) -> CallPolicy {
        let own = model.map(|model| (&model.policy, &model.retry, &model.window));
        let (policy, retry, window) = match own {
            Some((policy, retry, window)) => {
                (self.default_policy.with(policy), self.retry.with(retry), self.window.with(window))
            }
            None => (self.default_policy.clone(), self.retry.clone(), self.window.clone()),
        };
        CallPolicy {
            sticky_key_attempts: policy.sticky_key_attempts.max(1),
            max_transfer_count: policy.max_transfer_count,
            max_transfer_timeout: policy.max_transfer_timeout,
            max_attempts: policy.max_attempts,
            max_attempts_hard: policy.max_attempts_hard.max(1),
            max_wait: policy.max_wait,
            deadline: policy.deadline,
            empty_completion: policy.empty_completion,
            structured_max_retries: policy.structured_max_retries,
            rules: policy.rules,
            retry,
            window,
            stall_window: self.stall_window,
            slow_call: self.breaker.slow_call,
        }
    }

    /// The timeouts of an attempt: the global ones, over them the provider's, over them the model's, key by key.
    pub fn timeouts_for(&self, provider: &Provider, model: Option<&Model>) -> Timeouts {
        let timeouts = self.timeouts.with(&provider.timeouts);
        model.map_or_else(|| timeouts.clone(), |model| timeouts.with(&model.timeouts))
    }

    /// The virtual model of that name.
    pub fn model(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.name == name)
    }

    /// The provider of that name, and its place.
    pub fn provider(&self, name: &str) -> Option<(usize, &Provider)> {
        self.providers.iter().enumerate().find(|(_, provider)| provider.name == name)
    }
}

impl Provider {
    /// What a call reads of it.
    pub fn policy(&self) -> ProviderPolicy {
        ProviderPolicy {
            name: self.name.as_str().into(),
            max_transfer_count: self.max_transfer_count,
            max_transfer_timeout: self.max_transfer_timeout,
            stop_on_transport_errors: self.stop_on_transport_errors,
            continue_status_codes: self.continue_status_codes.clone(),
            stop_status_codes: self.stop_status_codes.clone(),
            retry_on_errors: self.retry_on_errors.clone(),
            rules: self.rules.clone(),
        }
    }

    /// Whether it serves a route's protocol: counting tokens comes with Messages, and pass-through asks for nothing.
    pub fn speaks(&self, format: Format) -> bool {
        match format {
            Format::Raw => true,
            Format::CountTokens => self.formats.contains(&Format::Messages),
            other => self.formats.contains(&other),
        }
    }
}

impl Policy {
    /// With what a table says otherwise.
    #[must_use]
    pub fn with(&self, over: &PolicyOverrides) -> Policy {
        let rules = &over.rules;
        Policy {
            sticky_key_attempts: over.sticky_key_attempts.unwrap_or(self.sticky_key_attempts),
            max_transfer_count: over.max_transfer_count.unwrap_or(self.max_transfer_count),
            max_transfer_timeout: over.max_transfer_timeout.unwrap_or(self.max_transfer_timeout),
            max_attempts: over.max_attempts.unwrap_or(self.max_attempts),
            max_attempts_hard: over.max_attempts_hard.unwrap_or(self.max_attempts_hard),
            max_wait: over.max_wait.unwrap_or(self.max_wait),
            deadline: over.deadline.unwrap_or(self.deadline),
            empty_completion: over.empty_completion.unwrap_or(self.empty_completion),
            structured_max_retries: over.structured_max_retries.unwrap_or(self.structured_max_retries),
            rules: Rules {
                success: rules.success.as_ref().unwrap_or(&self.rules.success).clone(),
                stop: rules.stop.as_ref().unwrap_or(&self.rules.stop).clone(),
            },
        }
    }
}

impl Retry {
    /// With what a table says otherwise.
    #[must_use]
    pub fn with(&self, over: &RetryOverrides) -> Retry {
        Retry {
            initial: over.initial.unwrap_or(self.initial),
            max: over.max.unwrap_or(self.max),
            factor_milli: over.factor_milli.unwrap_or(self.factor_milli),
            jitter_ppm: over.jitter_ppm.unwrap_or(self.jitter_ppm),
            stream: over.stream.unwrap_or(self.stream),
        }
    }
}

impl Window {
    /// With what a table says otherwise.
    #[must_use]
    pub fn with(&self, over: &WindowOverrides) -> Window {
        Window {
            max_bytes: over.max_bytes.unwrap_or(self.max_bytes),
            max_events: over.max_events.unwrap_or(self.max_events),
        }
    }
}

impl Timeouts {
    /// With what a table says otherwise.
    #[must_use]
    pub fn with(&self, over: &TimeoutOverrides) -> Timeouts {
        Timeouts {
            connect: over.connect.unwrap_or(self.connect),
            first_byte: over.first_byte.unwrap_or(self.first_byte),
            first_content: over.first_content.unwrap_or(self.first_content),
            idle: over.idle.unwrap_or(self.idle),
            total: over.total.unwrap_or(self.total),
        }
    }
}
