//! Names that are numbers.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// One client request; unique within a process.
    CallId(u64)
}
id! {
    /// An attempt of a call, counted from 0 in the order of their starts.
    AttemptNo(u16)
}
id! {
    /// A place held (or queued for) at the pool: one attempt's, unique within a store.
    LeaseId(u64)
}
id! {
    /// A target at the pool: a source and a model. Stays the same over reloads.
    TargetId(u32)
}
id! {
    /// A source: the triple (provider, endpoint, key). Stays the same over reloads.
    SourceId(u32)
}
id! {
    /// Keys that share one quota. Stays the same over reloads.
    AccountId(u32)
}
id! {
    /// A candidate's place in its call's plan.
    Choice(u16)
}
