//! A provider that misbehaves to order: `surefoot mock`, and [`Mock`] for use inside a process.
//!
//! It speaks every protocol of the gateway natively and answers well unless told otherwise: by a header (`x-mock: 503`),
//! by the model's name (`mock-503`), by the API key (`mock:503`) or by a script. The words are those of [`DIRECTIVES`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use surefoot::mock::{Mock, Script};
//!
//! let flaky = Script::always("503:retry-after=1; cut-after=2; ok")?;
//! let mock = Mock::start("127.0.0.1:0".parse()?, flaky).await?;
//! assert_eq!(mock.count(), 0);
//! mock.stop().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
mod ask;
mod behaviour;
mod choose;
mod compose;
mod date;
mod dialect;
mod directive;
mod listen;
mod script;
mod serve;
mod state;
mod table;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinHandle;

pub use behaviour::{Behaviour, Break, Chunk, Empty, ErrorWords, Fault, Gzip, How, Limit, LineEnd, Point, Shape};
pub use choose::By;
pub use directive::DirectiveError;
pub use script::{Accept, Account, Rule, Script, ScriptError};
pub use state::{Record, RecordEnd};
pub use table::{DIRECTIVES, Group, Row};

use state::State;

/// Arguments of `surefoot mock`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    about = "A provider that misbehaves to order, for every protocol",
    long_about = LONG_ABOUT,
    after_long_help = after_long_help()
)]
pub struct MockArgs {
    /// Address to listen on; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:4010")]
    pub listen: SocketAddr,
    /// Script in TOML: rules for paths, models, keys and the n-th request
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// What every request gets that nothing else decides, in turn: "503*2; ok"
    #[arg(long, value_name = "DIRECTIVES", conflicts_with = "script")]
    pub always: Option<String>,
    /// Prints no line for each request
    #[arg(long)]
    pub quiet: bool,
}

const LONG_ABOUT: &str = "\
A provider that misbehaves to order: OpenAI's Chat Completions, Responses, Embeddings, Images and Models, Anthropic's
Messages. It answers well, with any key and any model, unless a request or a script tells it otherwise:

  header      x-mock: 503:retry-after=2
  model       mock-503, mock-cut-after=2, mock:stall
  API key     mock:503, sk-mock-flaky=0.3
  --always    503*2; ok
  --script    rules, see the example below

The first of these that says something decides. Words are joined by commas; answers in turn are separated by semicolons,
the last one is given for ever.";

fn after_long_help() -> String {
    format!("{}{EXAMPLES}", table::help().trim_start())
}

const EXAMPLES: &str = r#"
Examples:
  surefoot mock --always "503:retry-after=1; ok"
  curl localhost:4010/v1/chat/completions -H "x-mock: cut-after=2c, gap=100" -d '{"model":"m","stream":true}'
  curl localhost:4010/_mock/requests        # what it was asked; DELETE forgets it

Script:
  seed = 7                                  # for flaky
  models = ["small", "large"]               # what GET /models lists
  default = "ok"                            # accept = "refuse" turns every connection down
  [[accounts]]                              # keys that share limits
  name = "acme"
  keys = ["sk-a*"]
  in_flight = 8
  [[rules]]                                 # the first that fits
  path = "/chat/completions"                # also: model, key, method, stream, nth, every, from_ms, until_ms
  model = "large*"
  answer = ["503*2", { text = "Hi, all", gap_ms = 20 }, "ok"]
"#;

/// Why the mock did not run. Every kind says what to do.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The address is taken or not ours.
    #[error("cannot listen on {addr}: {source}; choose another with --listen, port 0 takes any free one")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The script cannot be read.
    #[error("cannot read the script {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The script is wrong.
    #[error("{}: the script is refused\n{source}", .path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// Every problem.
        source: ScriptError,
    },
    /// `--always` is wrong.
    #[error("--always: {0}")]
    Always(#[from] DirectiveError),
    /// Signals or output do not work.
    #[error("cannot go on: {0}")]
    Io(#[from] io::Error),
}

/// Runs the command until Ctrl-C or SIGTERM.
pub async fn run(args: MockArgs) -> Result<(), MockError> {
    let script = match (&args.script, &args.always) {
        (Some(path), _) => {
            let read = tokio::fs::read_to_string(path).await;
            let text = read.map_err(|source| MockError::Read { path: path.clone(), source })?;
            Script::from_toml(&text).map_err(|source| MockError::Script { path: path.clone(), source })?
        }
        (None, Some(directives)) => Script::always(directives)?,
        (None, None) => Script::default(),
    };
    let started = Mock::launch(args.listen, script, !args.quiet).await;
    let mock = started.map_err(|source| MockError::Listen { addr: args.listen, source })?;
    let mut stdout = io::stdout();
    writeln!(stdout, "listening on {}", mock.url())?;
    stdout.flush()?;
    asked_to_stop().await?;
    mock.stop().await;
    Ok(())
}

async fn asked_to_stop() -> io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            biased;
            _ = terminate.recv() => Ok(()),
            pressed = tokio::signal::ctrl_c() => pressed,
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

/// A running mock provider. Dropping it ends it at once, as [`Mock::stop`] does, connections and all.
#[derive(Debug)]
pub struct Mock {
    addr: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Mock {
    /// Starts one on `listen` (port 0 = any). With [`Accept::Refuse`] the port is reserved all the same.
    pub async fn start(listen: SocketAddr, script: Script) -> io::Result<Mock> {
        Mock::launch(listen, script, false).await
    }

    async fn launch(listen: SocketAddr, script: Script, log: bool) -> io::Result<Mock> {
        let door = listen::Door::new(listen, script.accept == Accept::Refuse)?;
        let addr = door.addr()?;
        let state = State::new(script, log);
        let task = tokio::spawn(listen::run(door, addr, Arc::clone(&state)));
        Ok(Mock { addr, state, task })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address as a URL without a path: `http://127.0.0.1:4010`. OpenAI's SDKs want `/v1` after it.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Requests so far, `GET /models` among them.
    pub fn count(&self) -> u64 {
        self.state.count()
    }

    /// Connections so far, those turned away by [`Accept::Close`] and [`Accept::Reset`] among them.
    pub fn connections(&self) -> u64 {
        self.state.connections()
    }

    /// Requests being answered now.
    pub fn in_flight(&self) -> usize {
        self.state.in_flight()
    }

    /// Most requests that were being answered at once.
    pub fn most_in_flight(&self) -> usize {
        self.state.most_in_flight()
    }

    /// The last 10,000 requests, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.state.records()
    }

    /// Forgets the records and starts every sequence anew; the count goes on.
    pub fn forget(&self) {
        self.state.forget();
    }

    /// Another script from now on: a provider that falls ill, heals, or goes down ([`Accept::Refuse`]).
    pub fn set_script(&self, script: Script) {
        self.state.set_script(script);
    }

    /// Ends it: the port is free and every connection gone when this returns.
    pub async fn stop(mut self) {
        self.task.abort();
        // The only error there can be is the abort itself.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.task.abort();
    }
}
