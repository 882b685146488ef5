"""Sign-in with other providers by OpenID Connect; knows neither accounts nor settings nor pages."""
