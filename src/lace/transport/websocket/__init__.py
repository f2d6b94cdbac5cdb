"""WebSockets, with and without TLS: the stream in binary messages, split anywhere (060).

How bytes are split into frames and messages means nothing. Text messages are refused.
Before the upgrade a server looks at Host, Origin and path, because any web page can make
a browser connect to it. Nothing is compressed, so that sizes tell nothing about secrets
and small messages cannot become large ones. Redirects and proxies are not followed.
"""
