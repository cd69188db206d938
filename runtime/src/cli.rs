//! What the commands of both binaries have in common.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use surefoot_core::policy::config::Config;

use crate::config_file::{Origin, Rejected};

/// Good.
pub const GOOD: u8 = 0;
/// It ran, and came out badly.
pub const FAILED: u8 = 1;
/// Usage or configuration.
pub const MISUSED: u8 = 2;

/// Which configuration a command takes.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigArgument {
    /// TOML, or JSON by extension; without it ./surefoot.toml, else providers from OPENAI_API_KEY and its like
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ConfigArgument {
    /// The configuration and where it came from; the exit code when there is none, its problems told. `beyond` finds what
    /// is wrong with it beyond the rules that all adapters share.
    ///
    /// # Errors
    ///
    /// [`MISUSED`].
    pub fn load(&self, beyond: impl FnOnce(&Config) -> Option<String>) -> Result<(Config, Origin), u8> {
        let origin = Origin::find(self.config.as_deref());
        let config = origin.load().map_err(|rejected| complain(&rejected, MISUSED))?;
        match beyond(&config) {
            None => Ok((config, origin)),
            Some(problem) => Err(complain(&Rejected { origin, problems: vec![problem] }, MISUSED)),
        }
    }

    /// Says of the configuration that it is good, or why not; `beyond` as for [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// [`MISUSED`].
    pub fn check(&self, beyond: impl FnOnce(&Config) -> Option<String>) -> Result<Config, u8> {
        let (config, origin) = self.load(beyond)?;
        println!("{origin}: good: {} providers, {} models", config.providers.len(), config.models.len());
        Ok(config)
    }
}

/// What the environment asks for and no binary here has yet.
pub fn telemetry_note() -> Option<&'static str> {
    std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").filter(|endpoint| !endpoint.is_empty())?;
    Some("OTEL_EXPORTER_OTLP_ENDPOINT: OpenTelemetry data is not sent yet; `admin_listen` serves /metrics")
}

/// The arguments that the process was started with; the exit code when they, or a plea for help, end it.
///
/// # Errors
///
/// [`GOOD`] after help or version, else [`MISUSED`].
pub fn arguments<A: Parser>() -> Result<A, ExitCode> {
    A::try_parse().map_err(|error| {
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { MISUSED } else { GOOD })
    })
}

/// Tells an error on stderr; the exit code.
pub fn complain(error: &dyn Display, code: u8) -> u8 {
    eprintln!("{error}");
    code
}
