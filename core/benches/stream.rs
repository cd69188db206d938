//! Prints what a chunk costs in the core: `cargo bench -p surefoot-core --bench stream`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a bench is about the time that passes")]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use surefoot_core::wire::Format;
use surefoot_core::wire::json;
use surefoot_core::wire::stream::StreamReader;

const CHAT: &str = "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"up-model\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
const MESSAGES: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n";
const RESPONSES: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\" word\"}\n\n";

fn main() {
    for (format, event) in [(Format::Chat, CHAT), (Format::Messages, MESSAGES), (Format::Responses, RESPONSES)] {
        for events_a_chunk in [1, 16] {
            let chunk = Bytes::from(event.repeat(events_a_chunk));
            let mut reader = StreamReader::new(format);
            let chunks = 400_000 / events_a_chunk;
            let started = Instant::now();
            for _ in 0..chunks {
                let mut rest = &chunk[..];
                while let Some(event) = reader.next(&mut rest) {
                    black_box(event);
                }
            }
            let took = started.elapsed();
            let events = (chunks * events_a_chunk) as f64;
            println!(
                "{:9} {events_a_chunk:2} events a chunk: {:6.0} ns an event, {:5.0} MB/s",
                format.as_str(),
                took.as_nanos() as f64 / events,
                events * event.len() as f64 / took.as_secs_f64() / 1e6
            );
        }
    }
    let long = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{}\"}}}}]}}", "words and words ".repeat(4096));
    let started = Instant::now();
    for _ in 0..2000 {
        black_box(json::Cursor::new(black_box(long.as_bytes())).skip().is_ok());
    }
    let took = started.elapsed();
    println!("JSON      long strings: {:5.0} MB/s", 2000.0 * long.len() as f64 / took.as_secs_f64() / 1e6);
}
