//! A Redis of the test's own: a child process on a free port of the loopback that keeps nothing on disk.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{skip, within};

/// A running store, killed when it is dropped.
#[derive(Debug)]
pub struct Store {
    child: Option<Child>,
    port: u16,
    dir: TempDir,
}

impl Store {
    /// Starts one; `None` where no `redis-server` or `valkey-server` is installed, which is said aloud.
    ///
    /// # Panics
    ///
    /// It is installed and does not start, or it is not and `CI` is set.
    pub fn start(test: &str) -> Option<Store> {
        if program().is_none() {
            skip(test, "neither redis-server nor valkey-server is installed");
            return None;
        }
        let dir =
            TempDir::with_prefix("surefoot-store-").unwrap_or_else(|error| panic!("no temporary folder: {error}"));
        let mut store = Store { child: None, port: free_port(), dir };
        // Somebody may take the port in between.
        for _ in 0..5 {
            if store.launch() {
                return Some(store);
            }
            store.port = free_port();
        }
        panic!("the store does not start:\n{}", store.log())
    }

    /// Where gateways find it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The same over its unix socket.
    pub fn socket_url(&self) -> String {
        format!("unix://{}", self.dir.path().join("socket").display())
    }

    /// Kills it: connections break, its memory is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same port, empty.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub fn restart(&mut self) {
        self.kill();
        assert!(within(10, || self.launch()), "the store does not start again:\n{}", self.log());
    }

    /// Stops it without a word to anybody: connections stay open and nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen one go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends one command in a line and gives the first line of the answer, and the bulk that follows it.
    ///
    /// # Panics
    ///
    /// It does not answer.
    pub fn command(&self, line: &str) -> String {
        self.try_command(line).unwrap_or_else(|| panic!("no answer to {line}:\n{}", self.log()))
    }

    fn try_command(&self, line: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("{line}\r\n").as_bytes()).ok()?;
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        reader.read_line(&mut head).ok()?;
        let head = head.trim_end();
        let Some(length) = head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) else {
            return (!head.is_empty()).then(|| head.to_owned());
        };
        let mut bulk = vec![0; length];
        reader.read_exact(&mut bulk).ok()?;
        Some(String::from_utf8_lossy(&bulk).into_owned())
    }

    fn launch(&mut self) -> bool {
        let Some(program) = program() else { return false };
        let log = std::fs::File::create(self.dir.path().join("log"));
        let log = log.map_or_else(|_| Stdio::null(), Stdio::from);
        let child = Command::new(program)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--unixsocket", "socket"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn();
        self.child = child.ok();
        let answers =
            within(10, || self.try_command("PING").is_some_and(|answer| answer == "+PONG") || self.has_ended());
        answers && !self.has_ended()
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok()).and_then(Pid::from_raw);
        assert_eq!(pid.map(|pid| kill_process(pid, signal)), Some(Ok(())), "no signal to the store");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server that is installed.
fn program() -> Option<&'static str> {
    ["redis-server", "valkey-server"].into_iter().find(|program| {
        let version = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        version.is_ok_and(|version| version.status.success())
    })
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no free port: {error}"));
    listener.local_addr().map_or(0, |addr| addr.port())
}
