//! Dates in headers, relative to now: a script cannot know when it runs.

use std::time::{SystemTime, UNIX_EPOCH};

/// `@date+2` and `@date-2` become an HTTP-date that far from `now` in seconds, `@rfc3339+2` a timestamp; anything else stays.
pub(super) fn resolved(value: &str, now: SystemTime) -> String {
    let seconds = |offset: &str| {
        let since = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // Rounded up, so that a date in one second is not already past.
        offset.parse::<i64>().ok().map(|offset| (since as i64 + 1).saturating_add(offset).clamp(0, 253_402_300_799))
    };
    if let Some(at) = value.strip_prefix("@date").and_then(seconds) {
        return http_date(at);
    }
    value.strip_prefix("@rfc3339").and_then(seconds).map_or_else(|| value.to_owned(), rfc3339)
}

/// Year, month, day of a day number since 1970 (Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}

fn http_date(at: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = civil(at.div_euclid(86_400));
    let name = DAYS[at.div_euclid(86_400).rem_euclid(7) as usize];
    let month = MONTHS[(month - 1) as usize];
    let (hour, minute, second) = (at / 3600 % 24, at / 60 % 60, at % 60);
    format!("{name}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

fn rfc3339(at: i64) -> String {
    let (year, month, day) = civil(at.div_euclid(86_400));
    let (hour, minute, second) = (at / 3600 % 24, at / 60 % 60, at % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_written_as_rfc_9110_has_them() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_770);
        assert_eq!(resolved("@date+6", now), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(resolved("@rfc3339+6", now), "1994-11-06T08:49:37Z");
        assert_eq!(http_date(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
    }

    #[test]
    fn other_values_stay_as_they_are() {
        for value in ["2", "@date", "@datex", "@other+2", ""] {
            assert_eq!(resolved(value, UNIX_EPOCH), value);
        }
    }
}
