//! The connection to the store. One batch is under way at a time, so commands arrive in the order in which they were
//! given; what comes in meanwhile is the next batch. A batch that takes too long, an error, a connection that breaks: the
//! store is down, everything under way is answered without it, and it is tried again in growing intervals.
//!
//! Second: every command on its own in a multiplexed connection. It saves at most one round trip of waiting and costs a
//! future and a wake-up a command; and settlements could overtake the questions that depend on them.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError, ServerErrorKind, Value};
use surefoot_core::pool::{Command, GATE_SCRIPT};
use surefoot_runtime::serve::gate::{BookKeeper, Gone};
use surefoot_runtime::state::Job;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};

use super::{ANSWER_LIMIT, CONNECT_LIMIT, LOOK_AGAIN, StoreAddress};

/// Commands in one go.
const MAX_BATCH: usize = 128;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A connection that held so long was a good one.
const STEADY: Duration = Duration::from_secs(10);

/// Why the store does not serve.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("no answer within {} ms", ANSWER_LIMIT.as_millis())]
    Slow,
    #[error("no connection within {} ms", CONNECT_LIMIT.as_millis())]
    NoConnection,
    #[error("{0}")]
    Client(#[from] RedisError),
    #[error("{0}")]
    Unreadable(#[from] surefoot_core::pool::Unreadable),
    #[error("an answer that is no text")]
    NoText,
}

/// Everything was dropped: nobody asks any more.
struct Over;

/// The store's side of the book.
#[derive(Debug)]
pub(super) struct Link {
    address: StoreAddress,
    jobs: UnboundedReceiver<Job>,
    keeper: BookKeeper,
    ticks: Interval,
    /// Jobs that wait for the first connection.
    held: Vec<Job>,
    state: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not yet known; commands wait for it a moment.
    Hopeful,
    Up,
    Down,
}

struct Connection {
    inner: MultiplexedConnection,
    script: String,
}

impl Link {
    /// A link that is not connected yet. Must be called within a tokio runtime.
    pub(super) fn new(address: StoreAddress, jobs: UnboundedReceiver<Job>, keeper: BookKeeper) -> Link {
        let mut ticks = interval(LOOK_AGAIN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Link { address, jobs, keeper, ticks, held: Vec::new(), state: Standing::Hopeful }
    }

    /// Connects and serves until nobody asks any more.
    pub(super) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let served = match self.connect().await {
                Ok(Ok(connection)) => self.serve(connection).await,
                Ok(Err(trouble)) => Ok(trouble),
                Err(over) => Err(over),
            };
            let Ok(trouble) = served else { return };
            self.down(&trouble);
            pause = if begun.elapsed() > STEADY { FIRST_PAUSE } else { pause };
            if self.rest(Instant::now() + pause).await.is_err() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Connects, while commands are answered by others, or wait for it a moment at first.
    async fn connect(&mut self) -> Result<Result<Connection, Trouble>, Over> {
        let client = self.address.client.clone();
        let connecting = timeout(CONNECT_LIMIT, open(client));
        tokio::pin!(connecting);
        let patience = Instant::now() + ANSWER_LIMIT;
        loop {
            tokio::select! {
                biased;
                opened = &mut connecting => return Ok(opened.unwrap_or(Err(Trouble::NoConnection))),
                job = self.jobs.recv() => {
                    let job = job.ok_or(Over)?;
                    match self.state {
                        Standing::Hopeful => self.held.push(job),
                        Standing::Up | Standing::Down => self.keeper.unanswered(vec![job])?,
                    }
                }
                () = sleep_until(patience), if self.state == Standing::Hopeful => self.down(&Trouble::Slow),
                _ = self.ticks.tick() => self.keeper.look_again()?,
            }
        }
    }

    /// Sends what comes, batch by batch; why that ended.
    async fn serve(&mut self, mut connection: Connection) -> Result<Trouble, Over> {
        if let Err(trouble) = self.up(&mut connection).await? {
            return Ok(trouble);
        }
        let mut batch = std::mem::take(&mut self.held);
        loop {
            if batch.is_empty() {
                tokio::select! {
                    biased;
                    received = self.jobs.recv_many(&mut batch, MAX_BATCH) => if received == 0 { return Err(Over) },
                    _ = self.ticks.tick() => self.keeper.look_again()?,
                }
                continue;
            }
            let commands: Vec<&Command> = batch.iter().map(Job::command).collect();
            let answers = connection.run(self.address.keys.key(), &commands).await;
            let jobs = std::mem::take(&mut batch);
            match answers {
                Ok(answers) => {
                    if let Err(trouble) = self.keeper.answered(jobs, answers)? {
                        return Ok(trouble.into());
                    }
                }
                Err(trouble) => {
                    self.keeper.unanswered(jobs)?;
                    return Ok(trouble);
                }
            }
        }
    }

    /// Says that the store is there, and gives back what it was owed.
    async fn up(&mut self, connection: &mut Connection) -> Result<Result<(), Trouble>, Over> {
        let owed = self.keeper.set_up(true)?;
        for owed in owed.chunks(MAX_BATCH) {
            let owed: Vec<&Command> = owed.iter().collect();
            if let Err(trouble) = connection.run(self.address.keys.key(), &owed).await {
                return Ok(Err(trouble));
            }
        }
        let store = &self.address.name;
        match self.state {
            Standing::Down => tracing::info!(%store, "the store is back: the gate is shared again"),
            Standing::Hopeful | Standing::Up => tracing::info!(%store, "the gate is shared through the store"),
        }
        self.state = Standing::Up;
        Ok(Ok(()))
    }

    /// Says once that the store is away, and answers without it whatever waits.
    fn down(&mut self, trouble: &Trouble) {
        if self.state != Standing::Down {
            use surefoot_core::policy::config::OnDown::{Closed, Local};
            let meanwhile = match self.address.on_down {
                Local => "this process decides by its own gate until it is back",
                Closed => "nothing is admitted until it is back (state.on_down)",
            };
            // A server's words may have lines; a log's line is one.
            let trouble = trouble.to_string().replace(['\r', '\n'], " ");
            tracing::warn!(store = %self.address.name, "the store cannot be reached: {trouble}; {meanwhile}");
        }
        self.state = Standing::Down;
        let _ = self.keeper.set_up(false);
        let mut left = std::mem::take(&mut self.held);
        while let Ok(job) = self.jobs.try_recv() {
            left.push(job);
        }
        let _ = self.keeper.unanswered(left);
    }

    /// Waits before the next try.
    async fn rest(&mut self, until: Instant) -> Result<(), Over> {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(until) => return Ok(()),
                // Given before it was known that the store is away.
                job = self.jobs.recv() => self.keeper.unanswered(vec![job.ok_or(Over)?])?,
                _ = self.ticks.tick() => self.keeper.look_again()?,
            }
        }
    }
}

impl From<Gone> for Over {
    fn from(_: Gone) -> Over {
        Over
    }
}

async fn open(client: redis::Client) -> Result<Connection, Trouble> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_LIMIT))
        .set_response_timeout(Some(ANSWER_LIMIT));
    let inner = client.get_multiplexed_async_connection_with_config(&limits).await?;
    let mut connection = Connection { inner, script: String::new() };
    connection.load().await?;
    Ok(connection)
}

impl Connection {
    /// Gives the script to the store, which may have forgotten it.
    async fn load(&mut self) -> Result<(), Trouble> {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(GATE_SCRIPT).to_owned();
        self.script = timeout(ANSWER_LIMIT, load.query_async(&mut self.inner)).await.map_err(|_| Trouble::Slow)??;
        Ok(())
    }

    /// Runs commands in one go; their answers.
    async fn run(&mut self, key: &str, commands: &[&Command]) -> Result<Vec<Vec<u8>>, Trouble> {
        let answers = self.send(key, commands).await?;
        let forgotten = |answer: &Value| matches!(answer, Value::ServerError(error) if is_no_script(error));
        if !answers.iter().any(forgotten) {
            return answers.into_iter().map(text).collect();
        }
        self.load().await?;
        let missed: Vec<&Command> = commands
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| forgotten(answer))
            .map(|(command, _)| *command)
            .collect();
        let mut again = self.send(key, &missed).await?.into_iter();
        let whole = answers.into_iter().map(|answer| match forgotten(&answer) {
            true => again.next().ok_or(Trouble::NoText),
            false => Ok(answer),
        });
        whole.map(|answer| answer.and_then(text)).collect()
    }

    async fn send(&mut self, key: &str, commands: &[&Command]) -> Result<Vec<Value>, Trouble> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        for command in commands {
            let mut call = Cmd::with_capacity(4 + command.args().len(), 512);
            call.arg("EVALSHA").arg(&self.script).arg(1).arg(key);
            for arg in command.args() {
                call.arg(arg);
            }
            pipeline.add_command(call);
        }
        let sent = self.inner.send_packed_commands(&pipeline, 0, commands.len());
        let answers = timeout(ANSWER_LIMIT, sent).await.map_err(|_| Trouble::Slow)??;
        if answers.len() == commands.len() { Ok(answers) } else { Err(Trouble::NoText) }
    }
}

fn is_no_script(error: &redis::ServerError) -> bool {
    error.kind() == Some(ServerErrorKind::NoScript)
}

fn text(answer: Value) -> Result<Vec<u8>, Trouble> {
    match answer {
        Value::BulkString(text) => Ok(text),
        Value::ServerError(error) => Err(Trouble::Client(error.into())),
        _ => Err(Trouble::NoText),
    }
}
