//! `surefoot demo`: a gateway among providers that misbehave, with traffic, and what became of it. No keys, no file.

mod cast;
mod report;
mod traffic;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use self::cast::Cast;
pub use self::report::Tally;
use self::traffic::Client;
use crate::serve::{Server, StartError};

/// Arguments of `surefoot demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// How long the traffic lasts
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Calls a second
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub rate: u32,
    /// Address of the gateway; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Goes on serving after the show, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
}

/// Why there was no show.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The gateway could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A mock provider could not start, or nobody reads the output.
    #[error("the demo cannot go on: {0}")]
    Io(#[from] io::Error),
    /// The cast's own configuration was refused.
    #[error("the demo's configuration is refused: {0}")]
    Config(String),
}

/// Runs the show and writes it to `out`.
///
/// # Errors
///
/// An address that cannot be taken, or an output that cannot be written.
pub async fn run(arguments: &DemoArgs, mut out: impl Write) -> Result<Tally, DemoError> {
    let cast = Cast::start().await?;
    let server = Server::open(cast.config(arguments.listen)?)?;
    let world = server.world();
    let shared = world.shared().clone();
    let (Some(address), Some(admin)) = (server.address(), server.admin_address()) else {
        return Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.run(async { drop(stopped.await) }, std::future::pending()));

    writeln!(out, "gateway      http://{address}/v1   (model \"demo\")\nstatus page  http://{admin}/\n\nproviders")?;
    for part in cast::PARTS {
        writeln!(out, "  {:8} {}", part.name, part.about)?;
    }
    writeln!(out, "\n{}", report::HEADINGS)?;
    let mut tally = Tally::default();
    show(arguments, &cast, Client::new(address), &mut tally, &shared, &mut out).await?;
    report::summary(&mut out, &tally, &world)?;
    if arguments.keep {
        writeln!(
            out,
            "\nserving on; try it, Ctrl-C ends it\n  curl http://{address}/v1/chat/completions -d '{{\"model\":\"demo\",\"messages\":[]}}'"
        )?;
        out.flush()?;
        tokio::signal::ctrl_c().await?;
    }
    let _ = stop.send(());
    let _ = serving.await;
    Ok(tally)
}

/// The traffic: a call at every beat, a line for every answer, and an outage in the middle.
async fn show(
    arguments: &DemoArgs,
    cast: &Cast,
    client: Client,
    tally: &mut Tally,
    shared: &crate::serve::shared::Shared,
    out: &mut impl Write,
) -> Result<(), DemoError> {
    let begun = Instant::now();
    let length = Duration::from_secs(arguments.seconds);
    let (falls, rises) = (begun + length * 3 / 10, begun + length * 6 / 10);
    let mut beat = tokio::time::interval(Duration::from_secs(1) / arguments.rate);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (ended, mut answers) = mpsc::unbounded_channel();
    let mut ended = Some(ended);
    let mut number = 0;
    let mut act = 0;
    loop {
        tokio::select! {
            biased;
            answer = answers.recv() => match answer {
                Some(answer) => {
                    report::line(out, &answer, &shared.recent.newest_first())?;
                    tally.count(&answer);
                }
                None => return Ok(()),
            },
            () = tokio::time::sleep_until(falls), if act == 0 => {
                act = 1;
                cast.fall();
                writeln!(out, "  --  {} refuses connections from now on", Cast::STAR)?;
            }
            () = tokio::time::sleep_until(rises), if act == 1 => {
                act = 2;
                cast.rise();
                writeln!(out, "  --  {} is back", Cast::STAR)?;
            }
            _ = beat.tick(), if ended.is_some() => {
                if begun.elapsed() >= length {
                    ended = None;
                } else if let Some(ended) = ended.clone() {
                    number += 1;
                    let client = client.clone();
                    tokio::spawn(async move { ended.send(client.ask(number, number % 2 == 0).await) });
                }
            }
        }
        out.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_call_of_the_show_is_served_and_the_failures_on_the_way_are_shown() {
        let arguments = DemoArgs { seconds: 2, rate: 15, listen: "127.0.0.1:0".parse().unwrap(), keep: false };
        let mut shown = Vec::new();
        let tally = run(&arguments, &mut shown).await.unwrap();
        let shown = String::from_utf8(shown).unwrap();
        assert!(tally.good() >= 20 && tally.failed() == 0, "{shown}");
        assert!(tally.attempts() > u64::from(tally.good()), "{shown}");
        assert!(shown.contains("refuses connections from now on") && shown.contains("is back"), "{shown}");
        assert!(shown.contains("locked/key1") && !shown.contains("sk-"), "{shown}");
    }
}
