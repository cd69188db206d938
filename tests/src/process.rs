//! Gateways and mocks as child processes: started on any free port, ended by their id, killed when dropped.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::binaries::{Runtime, TOKIO};
use crate::within;

/// How long a process may take to say that it listens, and to end after SIGTERM. Wide: a loaded machine is no failure.
const PATIENCE_SECONDS: u64 = 20;

/// A command about to be started, in a folder and an environment of its own.
#[derive(Debug)]
pub struct Launch {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    dir: TempDir,
}

impl Launch {
    /// A command of a runtime's binary.
    ///
    /// # Panics
    ///
    /// The binary cannot be built, or there is no place for temporary files.
    pub fn new(runtime: &Runtime, args: &[&str]) -> Launch {
        let dir =
            TempDir::with_prefix("surefoot-tests-").unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        Launch { program: runtime.path(), args: args.iter().map(|&arg| arg.to_owned()).collect(), env: Vec::new(), dir }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: &str) -> Launch {
        self.args.push(arg.to_owned());
        self
    }

    /// Sets a variable. Nothing but `PATH` comes from the test's own environment: its proxies and keys are not the test's.
    pub fn env(mut self, name: &str, value: &str) -> Launch {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes a file into the folder that the command is started in.
    ///
    /// # Panics
    ///
    /// It cannot be written.
    pub fn file(self, name: &str, text: &str) -> Launch {
        write(&self.dir.path().join(name), text);
        self
    }

    /// The folder that the command is started in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs it to its end: exit code, standard output, standard error.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub fn run(self) -> (Option<i32>, String, String) {
        let done = self.command().output().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    }

    /// Starts it and waits for its line `listening on http://ADDR`.
    ///
    /// # Panics
    ///
    /// The line does not come.
    pub fn start(self) -> Process {
        let mut child = self.command().spawn().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let output = Arc::new(Mutex::new(String::new()));
        follow(child.stdout.take(), &output);
        follow(child.stderr.take(), &output);
        let mut process = Process { child, output, addr: String::new(), dir: self.dir };
        let found = within(PATIENCE_SECONDS, || {
            let line = process
                .output()
                .lines()
                .find_map(|line| line.split_once("listening on http://"))
                .map(|(_, addr)| addr.trim().to_owned());
            process.addr = line.unwrap_or_default();
            !process.addr.is_empty() || process.child.try_wait().is_ok_and(|ended| ended.is_some())
        });
        assert!(found && !process.addr.is_empty(), "no line `listening on http://ADDR`; output:\n{}", process.output());
        process
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).current_dir(self.dir.path()).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("RUST_BACKTRACE", "1").envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Reads a pipe to its end: a process whose pipe is full stands still.
fn follow<R: Read + Send + 'static>(pipe: Option<R>, output: &Arc<Mutex<String>>) {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        let Some(pipe) = pipe else { return };
        let mut lines = BufReader::new(pipe);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            lock(&output).push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running process that listens.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: Arc<Mutex<String>>,
    addr: String,
    dir: TempDir,
}

impl Process {
    /// Host and port that it listens on.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// Its address as a URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it wrote so far, standard output and error together.
    pub fn output(&self) -> String {
        lock(&self.output).clone()
    }

    /// The folder that it runs in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    ///
    /// It is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let sent = pid.map(|pid| kill_process(pid, signal));
        assert_eq!(sent, Some(Ok(())), "no signal to {}; output:\n{}", self.child.id(), self.output());
    }

    /// Waits for its end; `None` when that takes longer than `seconds`.
    ///
    /// # Panics
    ///
    /// It was waited for already.
    pub fn wait(&mut self, seconds: u64) -> Option<ExitStatus> {
        let mut ended = None;
        within(seconds, || {
            ended = self.child.try_wait().unwrap_or_else(|error| panic!("no news of the process: {error}"));
            ended.is_some()
        });
        ended
    }

    /// SIGTERM, then the exit code and how long it took to end.
    ///
    /// # Panics
    ///
    /// It does not end.
    pub fn stop(&mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        self.signal(Signal::TERM);
        let status = self.wait(PATIENCE_SECONDS);
        let status = status.unwrap_or_else(|| panic!("still running after SIGTERM; output:\n{}", self.output()));
        (status.code(), begun.elapsed())
    }

    /// Resident memory in bytes; `None` where the system does not tell.
    pub fn rss(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
    }

    /// Number of open descriptors; `None` where the system does not tell.
    pub fn descriptors(&self) -> Option<usize> {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).ok().map(Iterator::count)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A dead child is no error here.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("output of process {}:\n{}", self.child.id(), self.output());
        }
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct Gateway(Process);

impl Gateway {
    /// Starts one with this configuration. Its `server.listen` should have port 0.
    pub fn start(runtime: &Runtime, config: &str) -> Gateway {
        Gateway::start_with(runtime, config, &[])
    }

    /// Starts one with this configuration and these variables.
    pub fn start_with(runtime: &Runtime, config: &str, env: &[(&str, &str)]) -> Gateway {
        let launch = Launch::new(runtime, &["serve", "--config", "surefoot.toml"]).file("surefoot.toml", config);
        Gateway(env.iter().fold(launch, |launch, (name, value)| launch.env(name, value)).start())
    }

    /// The address of its metrics and status, from its log: `RUST_LOG` must let it through, and the configuration have
    /// one.
    ///
    /// # Panics
    ///
    /// It does not say.
    pub fn admin_addr(&self) -> String {
        let found = || {
            let output = self.output();
            let line = output.lines().find_map(|line| line.split_once("metrics and status on http://"));
            line.map(|(_, addr)| addr.trim().to_owned())
        };
        // Standard error is read by a thread of its own, and may come after the line on standard output.
        assert!(within(PATIENCE_SECONDS, || found().is_some()), "no admin address; output:\n{}", self.output());
        found().unwrap_or_default()
    }

    /// Replaces the configuration and sends SIGHUP. What came of it is in the output, some time later.
    pub fn reload(&self, config: &str) {
        write(&self.0.dir().join("surefoot.toml"), config);
        self.0.signal(Signal::HUP);
    }
}

/// A running mock provider.
#[derive(Debug)]
pub struct Mock(Process);

impl Mock {
    /// Starts one that answers well unless a request says otherwise.
    pub fn start() -> Mock {
        Mock(Launch::new(&TOKIO, &["mock", "--listen", "127.0.0.1:0", "--quiet"]).start())
    }

    /// Starts one that follows this script.
    pub fn with_script(script: &str) -> Mock {
        let args = ["mock", "--listen", "127.0.0.1:0", "--quiet", "--script", "script.toml"];
        Mock(Launch::new(&TOKIO, &args).file("script.toml", script).start())
    }
}

impl std::ops::Deref for Gateway {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl std::ops::DerefMut for Gateway {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}

impl std::ops::Deref for Mock {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}
