//! stub
use surefoot_core::call::Phase;
use surefoot_core::pool::TargetView;
use surefoot_core::time::Time;
use crate::scenario::Scenario;
use crate::world::record::Record;

/// Something that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub id: &'static str,
    /// When.
    pub at: Time,
    /// The call.
    pub call: Option<u32>,
    /// What.
    pub text: String,
}
/// stub
#[derive(Debug)]
pub struct Checks { first: Option<Violation> }
#[expect(missing_docs)]
impl Checks {
    pub fn new(_: &Scenario) -> Checks { Checks { first: None } }
    pub fn observe(&mut self, _: Time, _: &Record<'_>) {}
    pub fn look(&mut self, _: Time, _: &[TargetView<'_>], _: usize) {}
    pub fn held(&mut self, _: Time, _: u32, _: Phase, _: u64) {}
    pub fn spin(&mut self, _: Time, _: u32, _: Time) {}
    pub fn idle(&mut self, _: Time, _: &[TargetView<'_>], _: usize, _: usize, _: Option<u32>) {}
    pub fn endless(&mut self, _: Time, _: u64) {}
    pub fn first(&self) -> Option<&Violation> { self.first.as_ref() }
}
