//! The executor: a thread for each core, all of them running the same tasks.

use std::future::Future;
use std::sync::Arc;
use std::thread;

use smol::channel::{Receiver, Sender, unbounded};
use smol::{Executor, Task};

/// Runs tasks on every core. Clones share the threads.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Executor<'static>>);

impl Tasks {
    /// Runs a task that its handle's owner can wait for or, by dropping the handle, end.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.0.spawn(task)
    }

    /// Runs `main` to its end, in this thread and with the help of as many others as there are further cores. They end
    /// with it; tasks that are left over are dropped where they are.
    ///
    /// # Errors
    ///
    /// A thread that the system does not give.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> std::io::Result<T> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (over, ended): (Sender<()>, Receiver<()>) = unbounded();
        let helpers = (1..cores).map(|core| {
            let (executor, ended) = (self.0.clone(), ended.clone());
            let help = move || {
                let _ = smol::block_on(executor.run(ended.recv()));
            };
            thread::Builder::new().name(format!("smol-{core}")).spawn(help)
        });
        let helpers = helpers.collect::<std::io::Result<Vec<_>>>()?;
        let output = smol::block_on(self.0.run(main));
        // Closing the channel is what the helpers wait for.
        drop(over);
        for helper in helpers {
            // One that panicked took only its task with it.
            let _ = helper.join();
        }
        Ok(output)
    }
}
