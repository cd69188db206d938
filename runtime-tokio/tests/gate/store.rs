//! A store's gate, asked as the gateway asks it but with a clock of the test's own.

use redis::{Connection, Pipeline};
use surefoot_core::pool::{Command, GATE_SCRIPT, Keyspace};

/// A connection to a store that has the script.
pub(crate) struct Remote {
    connection: Connection,
    script: String,
}

impl Remote {
    /// Connects to a store's address.
    pub(crate) fn connect(url: String) -> Remote {
        let client = redis::Client::open(url).expect("an address");
        let mut connection = client.get_connection().expect("a connection");
        let script = redis::cmd("SCRIPT").arg("LOAD").arg(GATE_SCRIPT).query(&mut connection).expect("a script");
        Remote { connection, script }
    }

    /// Empties the store, then runs commands in one go; their answers.
    pub(crate) fn run(&mut self, keys: &Keyspace, commands: &[Command]) -> Vec<Vec<u8>> {
        let mut pipeline = Pipeline::with_capacity(commands.len() + 1);
        pipeline.cmd("FLUSHALL").ignore();
        for command in commands {
            let call = pipeline.cmd("EVALSHA").arg(&self.script).arg(1).arg(keys.key());
            for arg in command.args() {
                call.arg(arg);
            }
        }
        pipeline.query(&mut self.connection).unwrap_or_else(|error| panic!("the script fails: {error}"))
    }

    /// One command, as it comes.
    pub(crate) fn ask(&mut self, keys: &Keyspace, command: &Command) -> Vec<u8> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.script).arg(1).arg(keys.key());
        for arg in command.args() {
            call.arg(arg);
        }
        call.query(&mut self.connection).unwrap_or_else(|error| panic!("the script fails: {error}"))
    }
}
