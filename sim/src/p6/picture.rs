//! The table as a picture: success and where the attempts went, a line for each policy. Self-contained, light and dark.

use std::fmt::Write;

use super::count::Figures;
use super::table::Row;
use super::world::SOURCES;

const WIDTH: f64 = 1000.0;
const TOP: f64 = 104.0;
const LINE: f64 = 44.0;
const BAR: f64 = 18.0;
/// Where the two panels begin, and how wide they are.
const SUCCESS: (f64, f64) = (180.0, 280.0);
const ATTEMPTS: (f64, f64) = (560.0, 400.0);
/// What G19 asks for, in percent.
const WANTED: f64 = 98.0;

const STYLE: &str = "
  svg { --ink: #1b1f24; --faint: #6a737d; --rule: #d0d7de; --paper: #ffffff; --good: #2f7d4f;
        --s0: #2f7d4f; --s1: #8b949e; --s2: #5b4b8a; --s3: #3b78b5; --s4: #d9822b; background: var(--paper); }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --faint: #9aa4af; --rule: #3a424b; --paper: #0f1419; --good: #4fb07a;
          --s0: #4fb07a; --s1: #76808a; --s2: #9d8bd6; --s3: #62a3e0; --s4: #eda14f; }
  }
  text { font: 13px system-ui, sans-serif; fill: var(--ink); }
  .title { font-size: 17px; font-weight: 600; }
  .faint { fill: var(--faint); font-size: 12px; }
  .end { text-anchor: end; }
  .rule { stroke: var(--rule); }
  .wanted { stroke: var(--ink); stroke-dasharray: 3 3; }
  .worst { stroke: var(--ink); stroke-width: 2; }
";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The picture alone.
pub fn svg(rows: &[Row]) -> String {
    let height = TOP + LINE * rows.len() as f64 + 28.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"P6: success and attempts by policy\">\n<style>{STYLE}</style>\n"
    );
    let seeds = match rows.first().map_or(0, |row| row.runs.len()) {
        1 => "one seed".to_owned(),
        several => format!("{several} seeds"),
    };
    // Writing to a string cannot fail.
    let _ =
        writeln!(out, "<text class=\"title\" x=\"20\" y=\"30\">Five sources of which one is well: P6, {seeds}</text>");
    let _ = writeln!(
        out,
        "<text class=\"faint\" x=\"{}\" y=\"62\">success without repeats: mean, and the worst seed</text>",
        SUCCESS.0
    );
    let _ = writeln!(out, "<text class=\"faint\" x=\"{}\" y=\"62\">attempts by source</text>", ATTEMPTS.0);
    legend(&mut out);
    let bottom = TOP + LINE * rows.len() as f64;
    scale(&mut out, bottom);
    let most = rows.iter().map(|row| row.mean(|run| run.attempts() as f64)).fold(1.0, f64::max);
    for (at, row) in rows.iter().enumerate() {
        line(&mut out, TOP + LINE * at as f64 + 12.0, row, most);
    }
    out.push_str("</svg>\n");
    out
}

fn legend(out: &mut String) {
    let mut x = ATTEMPTS.0 - 32.0;
    for (at, name) in SOURCES.iter().enumerate() {
        let _ = writeln!(out, "<rect x=\"{x}\" y=\"76\" width=\"10\" height=\"10\" fill=\"var(--s{at})\"/>");
        let _ = writeln!(out, "<text class=\"faint\" x=\"{}\" y=\"85\">{name}</text>", x + 14.0);
        x += 28.0 + 6.2 * name.len() as f64;
    }
}

fn scale(out: &mut String, bottom: f64) {
    for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let x = SUCCESS.0 + SUCCESS.1 * percent / 100.0;
        let _ = writeln!(out, "<line class=\"rule\" x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{bottom}\"/>");
        let _ = writeln!(
            out,
            "<text class=\"faint\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{percent}</text>",
            bottom + 16.0
        );
    }
    let x = SUCCESS.0 + SUCCESS.1 * WANTED / 100.0;
    let _ = writeln!(out, "<line class=\"wanted\" x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\"/>", TOP - 6.0);
    let _ = writeln!(out, "<text class=\"faint end\" x=\"{}\" y=\"{}\">{WANTED} %</text>", x + 4.0, TOP - 10.0);
}

fn line(out: &mut String, y: f64, row: &Row, most: f64) {
    let text = y + BAR - 4.0;
    let mean = row.mean(Figures::success);
    let _ = writeln!(out, "<text class=\"end\" x=\"{}\" y=\"{text}\">{}</text>", SUCCESS.0 - 12.0, escaped(&row.name));
    let _ = writeln!(
        out,
        "<rect x=\"{}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" fill=\"var(--good)\"/>",
        SUCCESS.0,
        SUCCESS.1 * mean / 100.0
    );
    if let Some((seed, worst)) = row.worst() {
        let x = SUCCESS.0 + SUCCESS.1 * worst / 100.0;
        let _ = writeln!(
            out,
            "<line class=\"worst\" x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{}\"><title>seed {seed}: {worst:.1} %</title></line>",
            y - 3.0,
            y + BAR + 3.0
        );
    }
    let _ = writeln!(out, "<text x=\"{}\" y=\"{text}\">{mean:.1} %</text>", SUCCESS.0 + SUCCESS.1 + 14.0);
    let mut x = ATTEMPTS.0;
    let unit = (ATTEMPTS.1 - 60.0) / most;
    for (at, name) in SOURCES.iter().enumerate() {
        let attempts = row.attempts(at);
        let width = attempts * unit;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"var(--s{at})\"><title>{name}: {attempts:.0}</title></rect>"
        );
        x += width;
    }
    let all = row.mean(|run| run.attempts() as f64);
    let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{text}\">{all:.0}</text>", x + 8.0);
}

/// The picture and the table on a page of their own.
pub fn page(svg: &str, table: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Surefoot: P6</title>\n<style>\n\
         :root {{ color-scheme: light dark; }}\n\
         body {{ margin: 24px auto; max-width: 1100px; padding: 0 16px; background: #ffffff; color: #1b1f24; }}\n\
         @media (prefers-color-scheme: dark) {{ body {{ background: #0f1419; color: #e6edf3; }} }}\n\
         svg {{ width: 100%; height: auto; }}\n\
         pre {{ font: 12px/1.5 ui-monospace, monospace; overflow-x: auto; }}\n</style>\n\
         {svg}<pre>{}</pre>\n</html>\n",
        escaped(table)
    )
}
