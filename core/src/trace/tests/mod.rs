mod codec;
mod files;
mod replays;
