//! Model discovery (M9): the providers' lists, fetched when they are due. Nothing waits for it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use surefoot_core::gateway::models::{Fetch, FetchError, read_list};

use super::reload::World;
use super::shared::Snapshot;
use crate::reactor::{Reactor, timeout, timeout_at};
use crate::upstream::{Exchange, News, Order};

/// A list takes no longer than this.
const LIMIT: Duration = Duration::from_secs(20);
/// A list is no longer than this.
const MAX_BYTES: usize = 8 << 20;

/// Fetches what is due, for as long as the process runs.
pub async fn run<R: Reactor>(world: Arc<World<R>>) {
    loop {
        let (due, snapshot, next) = world.due();
        for fetch in due {
            world.shared().upstreams.reactor().spawn(fetch_one(world.clone(), snapshot.clone(), fetch));
        }
        let next = world.shared().clock.instant(next);
        let _ = timeout_at::<R::Timer, _>(next, world.changed()).await;
    }
}

async fn fetch_one<R: Reactor>(world: Arc<World<R>>, snapshot: Arc<Snapshot<R>>, fetch: Fetch) {
    let answer = match begin(&snapshot, &fetch) {
        Some(exchange) => timeout::<R::Timer, _>(LIMIT, whole(exchange)).await.flatten(),
        None => None,
    };
    let list = match answer {
        Some((status, body)) => read_list(status, &body),
        None => Err(FetchError::Transport),
    };
    world.record(&fetch.provider, list);
}

fn begin<R: Reactor>(snapshot: &Snapshot<R>, fetch: &Fetch) -> Option<Exchange<R>> {
    let upstream = snapshot.gateway.upstream(fetch.place)?;
    let tail = upstream.discovery();
    let mut headers = HeaderMap::new();
    for (name, value) in upstream.headers(&tail) {
        headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::try_from(value).ok()?);
    }
    let target = upstream.path_and_query(&tail).parse().ok()?;
    let connect = Some(Duration::from_secs(10));
    let order = Order { method: Method::GET, target, headers, body: Bytes::new(), connect, inspect: true };
    Some(Exchange::start(snapshot.origin(fetch.place)?, order))
}

/// The whole answer; `None` if it broke or is too long.
async fn whole<R: Reactor>(mut exchange: Exchange<R>) -> Option<(u16, Bytes)> {
    let (mut status, mut body) = (0, BytesMut::new());
    loop {
        match poll_fn(|cx| exchange.poll(cx)).await {
            News::Head(head) => status = head.status.as_u16(),
            News::Chunk(bytes) if body.len() + bytes.len() <= MAX_BYTES => body.extend_from_slice(&bytes),
            News::End => return Some((status, body.freeze())),
            News::Chunk(_) | News::Fault(_) => return None,
        }
    }
}
