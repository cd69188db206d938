//! How an attempt ended, in the seven words that everything else uses.

/// An attempt's outcome: what the pool learns from it (M6, G3).
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A whole good answer.
    Success,
    /// The source failed in a way that another try, there or elsewhere, may cure: a failure for breaker and health.
    Transient,
    /// A 429: a schedule, not a failure. No evidence for the breaker; health and pace hear of it (G12).
    RateLimited,
    /// The key is bad or its credit is gone: every target of the source is opened by force (G6).
    SourceDead,
    /// A good answer that is not what was asked for (G17); no evidence against anyone.
    ResultInvalid,
    /// The source will not serve this request (400, 404, a redirect …); no evidence against it.
    RequestRejected,
    /// The client left, or the gateway stopped; no evidence against anyone (X4).
    Cancelled,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 7] = [
        Outcome::Success,
        Outcome::Transient,
        Outcome::RateLimited,
        Outcome::SourceDead,
        Outcome::ResultInvalid,
        Outcome::RequestRejected,
        Outcome::Cancelled,
    ];

    /// The word used in traces, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Transient => "transient",
            Outcome::RateLimited => "rate_limited",
            Outcome::SourceDead => "source_dead",
            Outcome::ResultInvalid => "result_invalid",
            Outcome::RequestRejected => "request_rejected",
            Outcome::Cancelled => "cancelled",
        }
    }
}
