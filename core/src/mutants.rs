//! Planted bugs: each is one that somebody made somewhere, and the simulator must find every one of them (X9).
//!
//! Without the feature `mutants` there is none: [`active`] is a constant and the code around it is as if it were not
//! there. With the feature one of them, chosen at run time for the whole process, is at work.

/// Declares the bugs, their names and the list of them.
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A planted bug.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// Every bug.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];

            /// Its name, as it is chosen by.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mutant::$name => $text,)*
                }
            }
        }
    };
}

mutants! {
    /// A client's cancel does not settle its lease (X4, S4).
    CancelKeepsLease = "cancel-keeps-lease",
    /// A cancel counts against the target (X4, S11).
    CancelIsAFailure = "cancel-is-a-failure",
    /// An attempt that ran out of time is not dropped (S3).
    TimeoutKeepsConnection = "timeout-keeps-connection",
    /// The first event commits, whatever it is (F15).
    CommitEarly = "commit-early",
    /// What was held before the commit is lost (F16).
    CommitLosesHeld = "commit-loses-held",
    /// The window's limit is looked at once a chunk (S12).
    WindowByChunk = "window-by-chunk",
    /// The window is not bounded (F16).
    WindowUnbounded = "window-unbounded",
    /// One transfer too many (F3).
    TransferOffByOne = "transfer-off-by-one",
    /// One try too many on the first source (F2).
    StickyOffByOne = "sticky-off-by-one",
    /// The transfer time is not looked at (F4).
    TransferTimeIgnored = "transfer-time-ignored",
    /// No ceiling of attempts (F5).
    CeilingIgnored = "ceiling-ignored",
    /// A 429 uses the retry budget (G12).
    PushbackUsesBudget = "pushback-uses-budget",
    /// The first retry waits (F2).
    FirstRetryWaits = "first-retry-waits",
    /// Jitter leaves the cap (G11).
    JitterPastCap = "jitter-past-cap",
    /// A `retry-after` is not read (G12).
    HintIgnored = "hint-ignored",
    /// A rest is for the key alone, not for its account (G13).
    RestForKeyAlone = "rest-for-key-alone",
    /// A shorter rest ends a longer one (G12).
    RestShortened = "rest-shortened",
    /// A half-open breaker has no slot: everybody probes (G6).
    ProbeWithoutLease = "probe-without-lease",
    /// A failed probe is retried at once (M6).
    ProbeRetried = "probe-retried",
    /// A 429 counts for the breaker (G3).
    PushbackIsAFailure = "pushback-is-a-failure",
    /// Results of another epoch count (G6).
    EpochIgnored = "epoch-ignored",
    /// A streak never opens (G4).
    SuppressAlways = "suppress-always",
    /// A streak opens although the rate acquits (G4).
    SuppressNever = "suppress-never",
    /// The window's buckets never empty (G2).
    WindowNeverEmpties = "window-never-empties",
    /// Reopening does not take longer (G5).
    CooldownNotDoubled = "cooldown-not-doubled",
    /// A dead key opens one of its targets only (G6).
    DeadKeySparesOthers = "dead-key-spares-others",
    /// The pace is never cut (G14).
    PaceNeverCut = "pace-never-cut",
    /// One attempt beyond `max_concurrency` (G15).
    ConcurrencyOffByOne = "concurrency-off-by-one",
    /// Tokens are not corrected by usage (G15).
    TokensNotCorrected = "tokens-not-corrected",
    /// A freed place wakes nobody (G14).
    LineForgotten = "line-forgotten",
    /// Leases are not renewed (S4).
    LeaseNotRenewed = "lease-not-renewed",
    /// The time that a client took counts as the upstream's silence (M5).
    IdleBlamesSlowClients = "idle-blames-slow-clients",
    /// A torn event goes out (M5).
    TornForwarded = "torn-forwarded",
    /// What follows the terminal event goes out (M5).
    TwoTerminals = "two-terminals",
    /// A stream that was cut is a success (M5).
    CutIsASuccess = "cut-is-a-success",
    /// An empty completion is a good one (M3).
    EmptyIsGood = "empty-is-good",
    /// An error behind a 200 is an answer (M2).
    ErrorBehind200IsGood = "error-behind-200-is-good",
    /// Success rules are not asked (F9).
    SuccessRulesIgnored = "success-rules-ignored",
    /// The first genuine error is told, not the last (F19).
    FirstErrorTold = "first-error-told",
    /// A provider's key is told to the client (X6).
    KeyTold = "key-told",
    /// Timers wait until there is no news, and while the client takes nothing (S4).
    TimersStarve = "timers-starve",
    /// A line feed that comes a chunk after its carriage return is lost (S12).
    LateLineFeedLost = "late-line-feed-lost",
    /// A tick asks for the next one at once (S9).
    TickForTick = "tick-for-tick",
    /// What breaks after the commit is tried again elsewhere (M5, S2).
    RetryAfterCommit = "retry-after-commit",
}

#[cfg(feature = "mutants")]
mod chosen {
    use super::Mutant;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// Its place in the list, from 1; 0 = none.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Chooses the bug that is at work in this process from now on.
    pub fn plant(mutant: Option<Mutant>) {
        CHOSEN.store(mutant.map_or(0, |mutant| mutant as u8 + 1), Ordering::SeqCst);
    }

    /// Whether this bug is at work.
    #[inline]
    pub fn active(mutant: Mutant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mutant as u8 + 1
    }
}

#[cfg(feature = "mutants")]
pub use chosen::{active, plant};

/// Whether this bug is at work: never, without the feature `mutants`.
#[cfg(not(feature = "mutants"))]
#[inline]
pub const fn active(_: Mutant) -> bool {
    false
}
