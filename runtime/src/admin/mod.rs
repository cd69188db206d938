//! The admin side: `/metrics`, `/status` and the status page. Read only, and nothing secret on it: what it shows are names,
//! states and counts.

pub mod metrics;
pub mod recent;
mod status;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use self::metrics::TargetGauges;
use crate::reactor::Reactor;
use crate::serve::Respond;
use crate::serve::World;
use crate::serve::body::ReplyBody;
use crate::serve::lifecycle::Presence;

/// The status page: one file, no requests but `/status`.
const PAGE: &str = include_str!("page.html");

/// What answers on the admin address.
#[derive(Debug)]
pub struct AdminSide<R: Reactor>(Arc<World<R>>);

impl<R: Reactor> Clone for AdminSide<R> {
    fn clone(&self) -> AdminSide<R> {
        AdminSide(self.0.clone())
    }
}

impl<R: Reactor> AdminSide<R> {
    /// The admin side of a world.
    pub fn new(world: Arc<World<R>>) -> AdminSide<R> {
        AdminSide(world)
    }

    fn answer(&self, method: &Method, path: &str) -> Response<ReplyBody<R>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = page(StatusCode::METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", "use GET\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/metrics" => page(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics()),
            "/status" => page(StatusCode::OK, "application/json", status::render(&self.0)),
            "/" => page(StatusCode::OK, "text/html; charset=utf-8", PAGE),
            "/health" => page(StatusCode::OK, "application/json", r#"{"status":"ok"}"#),
            _ => page(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "there are /, /status and /metrics\n"),
        }
    }

    fn metrics(&self) -> Vec<u8> {
        let shared = self.0.shared();
        let now = shared.clock.now();
        // Copied out first: the gate is not held while text is made.
        let targets: Vec<(String, TargetGauges<'static>)> = shared.gate.with_pool(|pool| {
            let gauges = pool.views(now).map(|view| {
                let pace = view.pace_limit_ppm.map(|ppm| ppm as f64 / 1e6);
                (view.name.to_owned(), TargetGauges { target: "", state: view.state, pace, inflight: view.inflight })
            });
            gauges.collect()
        });
        let targets = targets.iter().map(|(name, gauges)| TargetGauges { target: name, ..*gauges });
        let models: Vec<(Arc<str>, bool)> =
            shared.request_health().iter(now).map(|(model, degraded)| (model.clone(), degraded)).collect();
        let models = models.iter().map(|(model, degraded)| (&**model, *degraded));
        shared.metrics.render(targets, models, shared.life.calls())
    }
}

impl<R: Reactor, B: Send> Respond<B> for AdminSide<R> {
    type Body = ReplyBody<R>;

    fn respond(
        &self,
        request: Request<B>,
        presence: Arc<Presence>,
    ) -> impl Future<Output = Response<ReplyBody<R>>> + Send + 'static {
        let _busy = presence.begin();
        let response = self.answer(request.method(), request.uri().path());
        std::future::ready(response)
    }

    fn refuse(&self, status: StatusCode, message: &'static str, _: &str) -> Response<ReplyBody<R>> {
        page(status, "text/plain; charset=utf-8", message)
    }

    fn client_stall(&self) -> Option<Duration> {
        Some(Duration::from_secs(30))
    }
}

fn page<R: Reactor>(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<ReplyBody<R>> {
    let mut response = Response::new(ReplyBody::Whole(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
