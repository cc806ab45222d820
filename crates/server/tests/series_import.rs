//! What VictoriaMetrics' users have: imports as lines of JSON and in Prometheus' text format,
//! exports that can be imported again, and which names make how many series. What is wrong with a
//! line is told with its number, and the others are taken.

mod common;

use common::taking::Taking;
use plinth_series::Point;
use plinth_server::SeriesConfig;

fn point(milliseconds: i64, value: f64) -> Point {
    Point { time: milliseconds * 1_000_000, value: value.into() }
}

#[test]
fn what_is_exported_can_be_imported() {
    let server = Taking::with(SeriesConfig::default());
    let lines = concat!(
        r#"{"metric":{"__name__":"up","job":"a \"b\""},"values":[1,0.5,null,"-Infinity"],"timestamps":[5,6,7,8]}"#,
        "\n\n",
        r#"{"timestamps":[1],"more":{"x":[1]},"metric":{"__name__":"bare"},"values":["Infinity"]}"#,
    );
    assert_eq!(server.post("/api/v1/import", "", lines.as_bytes()).status, 204);
    let export = "/api/v1/export?match[]=%7B__name__=~%22.%2B%22%7D";
    let exported = server.get(export);
    let expected = concat!(
        r#"{"metric":{"__name__":"up","job":"a \"b\""},"values":[1,0.5,null,"-Infinity"],"timestamps":[5,6,7,8]}"#,
        "\n",
        r#"{"metric":{"__name__":"bare"},"values":["Infinity"],"timestamps":[1]}"#,
        "\n",
    );
    let mut lines: Vec<String> = exported.text().lines().map(str::to_owned).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.len()));
    assert_eq!((exported.status, lines.join("\n") + "\n"), (200, expected.to_owned()));
    assert!(exported.head.contains("content-type: application/stream+json"), "{}", exported.head);
    let part = server.ask("POST", "/api/v1/export", "", b"match[]=up&start=0.006&end=0.006").text();
    assert!(part.ends_with("\"values\":[0.5],\"timestamps\":[6]}\n"), "{part}");
    let again = Taking::with(SeriesConfig::default());
    assert_eq!(again.post("/api/v1/import", "", &exported.body).status, 204);
    let found = again.end(&["up job=\"a\\ \"b\"\"", "up job=a\\ \"b\"", "bare"]);
    assert_eq!(
        found[1],
        [point(5, 1.0), point(6, 0.5), point(7, f64::NAN), point(8, f64::NEG_INFINITY)]
    );
    assert_eq!((found[0].len(), &found[2][..]), (0, &[point(1, f64::INFINITY)][..]));
    assert_eq!(server.get("/api/v1/export").status, 400);
    assert_eq!(server.get("/api/v1/export?match[]=%7B").status, 400);
    assert_eq!(server.get("/api/v1/export?match[]=nothing").text(), "");
}

/// More points than a leaf has, and than a piece of an answer.
#[test]
fn a_long_series_is_exported_in_several_lines() {
    let server = Taking::with(SeriesConfig::default());
    let all: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let all = all.join(",");
    let line = format!(r#"{{"metric":{{"__name__":"m"}},"values":[{all}],"timestamps":[{all}]}}"#);
    assert_eq!(server.post("/api/v1/import", "", line.as_bytes()).status, 204);
    let exported = server.get("/api/v1/export?match[]=m");
    assert!(exported.text().lines().count() > 3);
    let again = Taking::with(SeriesConfig::default());
    assert_eq!(again.post("/api/v1/import", "", &exported.body).status, 204);
    let found = again.end(&["m"]).remove(0);
    assert!(found.into_iter().eq((0..20_000).map(|n| point(n, n as f64))));
}

/// Few bytes of a body would be very many in memory.
#[test]
fn a_line_of_very_many_samples_is_refused() {
    let server = Taking::with(SeriesConfig::default());
    let all = vec!["0"; (1 << 18) + 1].join(",");
    let line = format!(r#"{{"metric":{{"__name__":"m"}},"values":[{all}],"timestamps":[{all}]}}"#);
    let heard = server.post("/api/v1/import", "", line.as_bytes());
    assert!(heard.status == 400 && heard.text().contains("more than 262144 samples in a line"));
    assert_eq!(server.end(&["m"])[0], []);
}

#[test]
fn each_wrong_line_is_told_and_the_others_are_taken() {
    let server = Taking::with(SeriesConfig::default());
    for (wrong, words) in [
        ("nonsense", "expected"),
        (r#"{"metric":{"job":"a"},"values":[1],"timestamps":[1]}"#, "no label __name__"),
        (r#"{"metric":{"__name__":"a|b"},"values":[1],"timestamps":[1]}"#, "no label __name__"),
        (
            r#"{"metric":{"__name__":"a"},"values":[1,2],"timestamps":[1]}"#,
            "2 values and 1 timestamps",
        ),
        (r#"{"metric":{"__name__":"a"},"values":["x"],"timestamps":[1]}"#, "a value is no number"),
        (
            r#"{"metric":{"__name__":"a"},"values":[1],"timestamps":[9223372036854775807]}"#,
            "between 1677",
        ),
        (r#"{"metric":{"__name__":7},"values":[1],"timestamps":[1]}"#, "expected a string"),
    ] {
        let body = format!(
            "{wrong}\n{}\n",
            r#"{"metric":{"__name__":"good"},"values":[1],"timestamps":[1]}"#
        );
        let heard = server.post("/api/v1/import", "", body.as_bytes());
        let text = heard.text();
        assert!(heard.status == 400 && text.contains(words) && text.contains("(line 1)"), "{text}");
        assert!(text.starts_with("partial write: 1 points were taken; "), "{text}");
    }
}

#[test]
fn the_text_format_of_exporters_is_taken() {
    let server = Taking::with(SeriesConfig::default());
    let text = "# HELP up Is it there?\n# TYPE up gauge\nup 1\n\
        up{job=\"a b\",path=\"C:\\\\x\",quote=\"\\\"\",line=\"1\\n2\",empty=\"\"} 0.5 1767225600007\n\
        odd { of = \"nan\" , } NaN 1767225600\n\
        {\"utf.8\", a=\"b\"} +Inf 1767225600.009 # {trace=\"x\"} 1\n\
        took_bucket{le=\"+Inf\"} 3 1767225600009 # EOF\n# EOF\n\
        up{job=a} 1\nup{job=\"a\" 1\nup x\nup 1 x\nup 1 2 3\n{} 1\nup{job=\"a\"}";
    let heard = server.post("/api/v1/import/prometheus?timestamp=5", "", text.as_bytes());
    let told = heard.text();
    assert_eq!((heard.status, told.matches("(line ").count()), (400, 7), "{told}");
    let known = server.get("/api/v1/metadata?metric=up").text();
    assert!(known.contains(r#"[{"help":"Is it there?","type":"gauge","unit":""}]"#), "{known}");
    let status = server.get("/api/v1/status/tsdb?limit=1").text();
    for words in [
        r#""numSeries":5"#,
        r#""seriesCountByMetricName":[{"name":"up","value":2}]"#,
        r#""labelValueCountByLabelName":[{"name":"__name__","value":4}]"#,
    ] {
        assert!(status.contains(words), "{status}");
    }
    assert_eq!(server.post("/api/v1/import/prometheus?timestamp=x", "", b"").status, 400);
    let named = "up job=a\\ b line=1\n2 path=C:\\\\x quote=\"";
    let found = server.end(&["up", named, "odd of=nan", "utf.8 a=b", "took_bucket le=+Inf"]);
    // Of OpenMetrics times are seconds.
    let expected = [(5000, 1.0), (7, 0.5), (0, f64::NAN), (9, f64::INFINITY), (9, 3.0)];
    let day = |time| if time < 5000 { 1_767_225_600_000 + time } else { time };
    assert_eq!(found, expected.map(|(time, value)| vec![point(day(time), value)]));
}

/// They were passed over without a word.
#[test]
fn parameters_that_victoriametrics_has_are_heeded() {
    let server = Taking::with(SeriesConfig::default());
    let line = r#"{"metric":{"__name__":"m","a":"x"},"values":[1,2,3],"timestamps":[1,2,3]}"#;
    let labels = "extra_label=a=b=c&extra_label=d=1";
    for (address, body) in [
        (format!("/api/v1/import?{labels}"), line),
        ("/api/v1/import".to_owned(), line),
        (format!("/api/v1/import/prometheus?{labels}&timestamp=1767225600"), "t{a=\"x\"} 7"),
        ("/api/v1/import/prometheus?timestamp=1767225600000".to_owned(), "t{a=\"x\"} 8"),
    ] {
        let heard = server.post(&address, "", body.as_bytes());
        assert_eq!(heard.status, 204, "{address}: {}", heard.text());
    }
    for wrong in ["a", "=b", "__name__=m"] {
        let heard = server.post(&format!("/api/v1/import?extra_label={wrong}"), "", b"");
        assert!(heard.status == 400 && heard.text().contains("name=value"), "{}", heard.text());
    }
    let many = vec!["extra_label=a="; 129].join("&");
    assert_eq!(server.post(&format!("/api/v1/import?{many}"), "", b"").status, 400);
    let exported = |rows: &str| {
        server.get(&format!("/api/v1/export?match[]=m%7Ba=~%22b.*%22%7D{rows}")).text()
    };
    let metric = r#"{"metric":{"__name__":"m","a":"b=c","d":"1"},"#;
    let whole = format!("{metric}\"values\":[1,2,3],\"timestamps\":[1,2,3]}}\n");
    let first = format!("{metric}\"values\":[1,2],\"timestamps\":[1,2]}}\n");
    let second = format!("{metric}\"values\":[3],\"timestamps\":[3]}}\n");
    assert_eq!(exported(""), whole);
    assert_eq!(exported("&max_rows_per_line=0"), whole);
    assert_eq!(exported("&max_rows_per_line=2"), first + &second);
    assert_eq!(server.get("/api/v1/export?match[]=m&max_rows_per_line=x").status, 400);
    let found = server.end(&["m a=x", "t a=b\\=c d=1", "t a=b=c d=1", "t a=x"]);
    let day = 1_767_225_600_000;
    assert_eq!(found[0].len(), 3);
    assert_eq!((found[1].len() + found[2].len(), &found[3][..]), (1, &[point(day, 8.0)][..]));
}
