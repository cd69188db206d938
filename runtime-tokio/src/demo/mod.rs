//! `surefoot demo`: a gateway and providers that misbehave, in one process, with no key and no configuration. Mixed traffic
//! goes through real sockets; each call is a line that shows what happened upstream and what the client saw of it.

mod client;
mod screen;
mod story;
mod tally;
mod watch;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use surefoot_core::policy::config;
use surefoot_core::pool::BreakerState;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use self::client::{Ask, Seen};
use self::screen::{Screen, Tone, seconds};
use self::story::{SCENES, SOURCES};
use self::tally::Summary;
use self::watch::{Breaker, Life, OURS, Watcher};
use crate::mock::{DirectiveError, Mock, Script};
use crate::serve::{Server, StartError};

/// The gateway's configuration.
const GATEWAY: &str = include_str!("gateway.toml");
/// The length that its times are made for.
const USUAL: Duration = Duration::from_secs(60);
/// With more calls a second than this nobody could read a line for each: the plain ones are only counted.
const READABLE: u32 = 12;
/// How long calls that are under way at the end may take.
const LAST_CALLS: Duration = Duration::from_secs(4);
/// Without a gateway nobody gives up for the client: it does so itself, after this.
const TWIN_PATIENCE: Duration = Duration::from_secs(2);

/// Arguments of `surefoot demo`.
#[derive(Clone, Debug, clap::Args)]
#[command(long_about = "\
Shows failover at work: no keys, no configuration. A gateway and three providers run in this process; mixed traffic
(Chat Completions, Responses and Messages; streams, whole answers, JSON) goes through real sockets, while the first
provider fails in every way that providers fail in. Each line is one call: when it ended, model, protocol and kind, what
happened upstream, how long it took, and what the client saw. Ctrl-C ends it with the summary.")]
pub struct DemoArgs {
    /// How long it runs
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Calls a second; above 12 only those are shown that did not go well at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub rate: u32,
    /// No colours and no line that is written over; so by itself where the output is no terminal
    #[arg(long)]
    pub plain: bool,
    /// Address of the gateway; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Goes on serving after the summary, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
}

/// Why there was no demo, or not a good one.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A provider could not be started.
    #[error("a mock provider cannot listen on the loopback address: {0}")]
    Mock(#[source] io::Error),
    /// The gateway could not be started.
    #[error("the gateway of the demo did not start: {0}")]
    Gateway(#[from] StartError),
    /// The gateway has no address.
    #[error("the gateway of the demo has no address; try again")]
    NoAddress,
    /// A script of the story is wrong.
    #[error("the demo's own script is wrong: {0}; please report this")]
    Script(#[from] DirectiveError),
    /// The gateway's configuration is wrong.
    #[error("the demo's own configuration is wrong: {0}; please report this")]
    Config(String),
    /// Nothing could be written.
    #[error("the demo cannot write its output: {0}")]
    Output(#[from] io::Error),
    /// Something ended as nothing must.
    #[error("{0} calls ended silently or with a wrong answer; please report this with the lines marked WRONG")]
    Misled(u64),
}

/// Runs the command until its time is over or Ctrl-C is pressed.
///
/// # Errors
///
/// It could not run, or a client was misled.
pub async fn run(args: DemoArgs) -> Result<(), DemoError> {
    let live = !args.plain && screen::is_terminal();
    let mut out = io::stdout();
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Nobody can press it then: the time decides.
            std::future::pending::<()>().await;
        }
    };
    match play(&args, &mut Screen::new(&mut out, live), stop).await {
        // Whoever reads has seen enough: `surefoot demo | head`.
        Err(DemoError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error),
        Ok(summary) if summary.misled > 0 => Err(DemoError::Misled(summary.misled)),
        Ok(_) => Ok(()),
    }
}

async fn play(args: &DemoArgs, screen: &mut Screen<'_>, stop: impl Future<Output = ()>) -> Result<Summary, DemoError> {
    let (stage, breakers) = Stage::set(args).await?;
    let summary = perform(args, screen, &stage, breakers, stop).await;
    stage.strike().await;
    summary
}

async fn perform(
    args: &DemoArgs,
    screen: &mut Screen<'_>,
    stage: &Stage,
    breakers: UnboundedReceiver<Breaker>,
    stop: impl Future<Output = ()>,
) -> Result<Summary, DemoError> {
    let mut stop = std::pin::pin!(stop);
    let mut show = Show::begin(args, screen, stage, breakers)?;
    let stopped = show.go_on(stop.as_mut()).await?;
    show.finish().await?;
    let summary = show.summary;
    if args.keep && !stopped {
        let try_it = format!("curl http://{}/v1/models", stage.gateway);
        screen.line(&format!("\nThe gateway goes on serving until Ctrl-C. Try: {try_it}"))?;
        stop.await;
    }
    Ok(summary)
}

/// The gateway and its providers.
struct Stage {
    mocks: Vec<Mock>,
    /// Does what the first of them does; asked straight.
    twin: Mock,
    gateway: SocketAddr,
    admin: Option<SocketAddr>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    watcher: Arc<Watcher>,
}

impl Stage {
    /// Also what its breakers will tell.
    async fn set(args: &DemoArgs) -> Result<(Stage, UnboundedReceiver<Breaker>), DemoError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut mocks = Vec::new();
        for _ in SOURCES {
            mocks.push(Mock::start(any, Script::default()).await.map_err(DemoError::Mock)?);
        }
        let twin = Mock::start(any, Script::default()).await.map_err(DemoError::Mock)?;
        let server = Server::open_direct(configuration(&mocks, args)?)?;
        let gateway = server.address().ok_or(DemoError::NoAddress)?;
        let admin = server.admin_address();
        let (sender, breakers) = unbounded_channel();
        let watcher = Arc::new(Watcher::new(sender));
        server.world().shared().watch(watcher.clone());
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            // Dropped is stopped too.
            let _ = stopped.await;
        };
        let serving = tokio::spawn(server.run(stopped, std::future::pending()));
        Ok((Stage { mocks, twin, gateway, admin, stop, serving, watcher }, breakers))
    }

    async fn strike(self) {
        let _ = self.stop.send(());
        let _ = self.serving.await;
        for mock in self.mocks {
            mock.stop().await;
        }
        self.twin.stop().await;
    }
}

fn configuration(mocks: &[Mock], args: &DemoArgs) -> Result<config::Config, DemoError> {
    let wrong = |what: &dyn std::fmt::Display| DemoError::Config(what.to_string());
    let table: toml::Table = GATEWAY.parse().map_err(|error: toml::de::Error| wrong(&error))?;
    let mut tree = serde_json::to_value(table).map_err(|error| wrong(&error))?;
    let scale = args.seconds as f64 / USUAL.as_secs_f64();
    if let Some(server) = tree.get_mut("server") {
        server["listen"] = json!(args.listen.to_string());
    }
    if let Some(breaker) = tree.get_mut("breaker").and_then(Value::as_object_mut) {
        for (_, span) in breaker {
            *span = json!(span.as_f64().unwrap_or_default() * scale);
        }
    }
    let url = |name: &str| {
        let place = name.strip_prefix('U')?.parse::<usize>().ok()?.checked_sub(1)?;
        Some(mocks.get(place)?.url())
    };
    config::read(&tree, &url).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        wrong(&problems.join("; "))
    })
}

/// Something that happened to a call.
enum Told {
    /// It came to its end at the gateway's client.
    Call(Ask, Life, Seen),
    /// So did its twin.
    Straight(Seen),
}

/// A demo under way.
struct Show<'s, 'o> {
    screen: &'s mut Screen<'o>,
    stage: &'s Stage,
    summary: Summary,
    begun: Instant,
    length: Duration,
    rate: u32,
    scene: usize,
    sent: u64,
    /// Calls and twins that are under way.
    open: u64,
    /// Plain calls that got no line in this scene.
    unshown: u64,
    /// Targets whose breaker is not closed.
    sick: Vec<String>,
    tell: UnboundedSender<Told>,
    told: UnboundedReceiver<Told>,
    breakers: UnboundedReceiver<Breaker>,
}

impl<'s, 'o> Show<'s, 'o> {
    fn begin(
        args: &DemoArgs,
        screen: &'s mut Screen<'o>,
        stage: &'s Stage,
        breakers: UnboundedReceiver<Breaker>,
    ) -> Result<Self, DemoError> {
        let (tell, told) = unbounded_channel();
        let mut show = Show {
            screen,
            stage,
            summary: Summary::default(),
            begun: Instant::now(),
            length: Duration::from_secs(args.seconds),
            rate: args.rate,
            scene: 0,
            sent: 0,
            open: 0,
            unshown: 0,
            sick: Vec::new(),
            tell,
            told,
            breakers,
        };
        show.introduce()?;
        show.enter(0)?;
        Ok(show)
    }

    /// Sends calls until the time is over; `true` = until it was stopped before that.
    async fn go_on(&mut self, mut stop: Pin<&mut impl Future<Output = ()>>) -> Result<bool, DemoError> {
        let mut calls = tokio::time::interval(Duration::from_secs(1) / self.rate);
        calls.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let end = self.begun + self.length;
        loop {
            let turn = self.begun + story::ends(self.scene, self.length);
            tokio::select! {
                biased;
                () = &mut stop => return Ok(true),
                () = tokio::time::sleep_until(end) => return Ok(false),
                () = tokio::time::sleep_until(turn), if self.scene + 1 < SCENES.len() => self.enter(self.scene + 1)?,
                Some(change) = self.breakers.recv() => self.breaker(&change)?,
                Some(told) = self.told.recv() => self.hear(told)?,
                _ = calls.tick() => self.send()?,
            }
        }
    }

    /// Hears the calls that are under way out, and sums up.
    async fn finish(&mut self) -> Result<(), DemoError> {
        let took = self.begun.elapsed();
        let deadline = Instant::now() + LAST_CALLS;
        while self.open > 0 {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(deadline) => break,
                Some(change) = self.breakers.recv() => self.breaker(&change)?,
                Some(told) = self.told.recv() => self.hear(told)?,
            }
        }
        self.tell_unshown()?;
        self.screen.bottom("")?;
        self.summary.print(self.screen, took)?;
        if self.open > 0 {
            self.screen.line(&format!("({} calls were still under way and are not counted)", self.open))?;
        }
        Ok(())
    }

    fn introduce(&mut self) -> Result<(), DemoError> {
        let title = self.screen.paint(Tone::Title, "Surefoot: a gateway, and three providers that misbehave");
        self.screen.line(&title)?;
        self.screen.line(&format!("clients      http://{}/v1", self.stage.gateway))?;
        if let Some(admin) = self.stage.admin {
            self.screen.line(&format!("status page  http://{admin}/"))?;
        }
        self.screen.line("models       smart: u1, else u2, else u3; fast: whoever is healthiest; json: like smart")?;
        self.screen.line("")?;
        self.screen.headings()?;
        Ok(())
    }

    fn enter(&mut self, scene: usize) -> Result<(), DemoError> {
        self.tell_unshown()?;
        self.scene = scene;
        let Some(now) = SCENES.get(scene) else { return Ok(()) };
        for (mock, source) in self.stage.mocks.iter().zip(SOURCES) {
            mock.set_script(now.script(source)?);
        }
        self.stage.twin.set_script(now.script(SOURCES[0])?);
        let title = self.screen.paint(Tone::Title, &format!("── {}/{} {}", scene + 1, SCENES.len(), now.title));
        self.screen.line("")?;
        self.screen.line(&title)?;
        for hint in tally::wrapped(now.hint, 76) {
            let hint = self.screen.paint(Tone::Quiet, &format!("   {hint}"));
            self.screen.line(&hint)?;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), DemoError> {
        let ask = Ask::nth(self.sent);
        let id = format!("{OURS}{}", self.sent);
        self.sent += 1;
        self.open += 2;
        let (tell, watcher, gateway) = (self.tell.clone(), self.stage.watcher.clone(), self.stage.gateway);
        tokio::spawn(async move {
            let mut seen = ask.send(gateway, &id, client::PATIENCE).await;
            let life = watcher.take(&id);
            seen.hold_against(life.tries().count());
            // Whoever listened may be gone.
            let _ = tell.send(Told::Call(ask, life, seen));
        });
        let (tell, twin) = (self.tell.clone(), self.stage.twin.addr());
        let ask = Ask { model: story::upstream_model(ask.model), ..ask };
        tokio::spawn(async move {
            let _ = tell.send(Told::Straight(ask.send(twin, "straight", TWIN_PATIENCE).await));
        });
        self.status()
    }

    fn hear(&mut self, told: Told) -> Result<(), DemoError> {
        self.open -= 1;
        match told {
            Told::Straight(seen) => self.summary.add_straight(&seen),
            Told::Call(ask, life, seen) => {
                self.summary.add(ask, &life, &seen);
                if self.rate > READABLE && life.is_plain() && seen.verdict.is_good() {
                    self.unshown += 1;
                } else {
                    self.screen.call(self.begun.elapsed(), ask, &life, &seen)?;
                }
            }
        }
        self.status()
    }

    fn breaker(&mut self, change: &Breaker) -> Result<(), DemoError> {
        self.summary.add_breaker(change);
        self.sick.retain(|target| *target != change.target);
        let (tone, what) = match change.to {
            BreakerState::Open => (Tone::Bad, "opened: calls pass it by"),
            BreakerState::HalfOpen => (Tone::Note, "lets a probe through"),
            BreakerState::Closed => (Tone::Good, "closed: it takes part again"),
        };
        if change.to != BreakerState::Closed {
            self.sick.push(change.target.clone());
        }
        let at = self.screen.paint(Tone::Quiet, &seconds(self.begun.elapsed()));
        let line = self.screen.paint(tone, &format!("breaker of {} {what}", change.target));
        self.screen.line(&format!("{at} {line}"))?;
        self.status()
    }

    fn tell_unshown(&mut self) -> Result<(), DemoError> {
        let unshown = std::mem::take(&mut self.unshown);
        if unshown > 0 {
            let line = self.screen.paint(Tone::Quiet, &format!("       and {unshown} calls that went well at once"));
            self.screen.line(&line)?;
        }
        Ok(())
    }

    /// The line at the bottom. Kept under 80 columns, for a line that wraps cannot be written over.
    fn status(&mut self) -> Result<(), DemoError> {
        if !self.screen.is_live() {
            return Ok(());
        }
        let (at, whole) = (self.begun.elapsed().as_secs().min(self.length.as_secs()), self.length.as_secs());
        let sick = if self.sick.is_empty() { "all closed".to_owned() } else { format!("{} open", self.sick.join(" ")) };
        let (calls, good) = (self.summary.calls, self.summary.good_percent());
        let line = format!("▸ {at}/{whole} s · {calls} calls, {good:.1} % good · breakers: {sick}");
        let line: String = line.chars().take(78).collect();
        let line = self.screen.paint(Tone::Title, &line);
        self.screen.bottom(&line)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F13, F15, F18, M2, M3, M5, M6, X6: what the demo claims, it shows; and it claims nothing that its calls do not bear out.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_short_demo_serves_its_calls_and_explains_those_it_could_not() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let args = DemoArgs { seconds: 3, rate: 25, plain: true, listen, keep: false };
        let mut out = Vec::new();
        let (stage, breakers) = Stage::set(&args).await.unwrap();
        let mut screen = Screen::new(&mut out, false);
        let played = perform(&args, &mut screen, &stage, breakers, std::future::pending()).await;
        let asked: u64 = stage.mocks.iter().map(Mock::count).sum();
        stage.strike().await;
        let (summary, shown) = (played.unwrap(), String::from_utf8(out).unwrap());

        assert!(summary.calls >= 40, "{shown}");
        assert_eq!(summary.good + summary.told + summary.errors + summary.misled, summary.calls, "{shown}");
        assert!(summary.is_loud() && summary.errors == 0, "{shown}");
        assert!(summary.good_percent() >= 80.0, "{shown}");
        assert!(summary.first_failed > 5 && summary.transfers > 0 && summary.retries > 0, "{shown}");
        assert_eq!(summary.attempts, summary.calls + summary.retries + summary.transfers, "{shown}");
        assert_eq!(summary.attempts, asked, "the providers counted otherwise\n{shown}");
        assert!(summary.straight.1 < summary.straight.0, "{shown}");
        for scene in &SCENES {
            assert!(shown.contains(scene.title), "{shown}");
        }
        assert!(!shown.contains("panic") && !shown.contains("WRONG") && !shown.contains('\x1b'), "{shown}");
        assert!(!shown.contains("sk-demo"), "{shown}");
    }

    #[tokio::test]
    async fn whoever_stops_it_gets_the_summary_of_what_there_was() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let args = DemoArgs { seconds: 3600, rate: 20, plain: true, listen, keep: true };
        let mut out = Vec::new();
        let stop = tokio::time::sleep(Duration::from_millis(300));
        let summary = play(&args, &mut Screen::new(&mut out, false), stop).await.unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(summary.calls >= 2 && summary.good == summary.calls, "{shown}");
        assert!(shown.contains("clients saw"), "{shown}");
    }
}
